// Which folder may import which (`npm run layers`). Each folder of src may import itself and the folders named here.
const MAY_IMPORT = {
  values: [],
  ui: ["values"],
  api: ["values"],
  live: ["values", "api"],
  charts: ["values", "ui", "live"],
  trajectory: ["values", "ui", "api", "live"],
  pickers: ["values", "ui", "api"],
  features: ["values", "ui", "api", "live", "charts", "trajectory", "pickers"],
};
const TRAJECTORY_MAY_IMPORT = {
  wire: [],
  forest: ["wire"],
  geometry: ["wire", "forest"],
  colours: ["geometry"],
  drawing: ["wire", "forest", "geometry", "colours"],
};

function layers(root, mayImport) {
  return Object.entries(mayImport).map(([name, below]) => ({
    name: `layers-of-${root.replaceAll("/", "-")}`,
    comment: `${root}/${name} may import only ${["itself", ...below].join(", ")}.`,
    severity: "error",
    // Tests of components use `api/testing`, whatever layer they are on.
    from: { path: `^${root}/${name}/`, pathNot: "\\.test\\.tsx$" },
    to: { path: `^${root}/`, pathNot: `^${root}/(${[name, ...below].join("|")})/` },
  }));
}

export default {
  forbidden: [
    {
      name: "no-circles",
      comment: "Move what both modules need into a module of its own, below both.",
      severity: "error",
      from: {},
      to: { circular: true },
    },
    ...layers("src", MAY_IMPORT),
    ...layers("src/trajectory", TRAJECTORY_MAY_IMPORT),
    {
      name: "features-apart",
      comment: "Features do not import one another. What several need belongs in a folder below them.",
      severity: "error",
      from: { path: "^src/features/([^/]+)/" },
      to: { path: "^src/features/", pathNot: "^src/features/$1/" },
    },
    {
      name: "app-is-the-top",
      comment: "Only the entry imports the routes, and nothing imports the entry.",
      severity: "error",
      from: { path: "^src/", pathNot: "^src/main\\.tsx$" },
      to: { path: "^src/(App|main)\\.tsx$" },
    },
    {
      name: "schema-through-the-client",
      comment: "The generated schema is read through `api/client` and `api/queries`, which name what pages need.",
      severity: "error",
      from: { path: "^src/", pathNot: "^src/api/" },
      to: { path: "^src/api/schema\\.gen" },
    },
  ],
  options: {
    doNotFollow: { path: "node_modules" },
    tsConfig: { fileName: "tsconfig.json" },
    // Imports of types count: they bind modules to one another as much as any.
    tsPreCompilationDeps: true,
  },
};
