// Tests of pure modules need nothing; tests of components run in a document without a browser. Both do without a
// network. Journeys through the whole dashboard are in tests/acceptance.
import { defineConfig } from "vitest/config";

export default defineConfig({
  test: {
    projects: [
      { test: { name: "pure", include: ["src/**/*.test.ts"], environment: "node" } },
      {
        test: {
          name: "components",
          include: ["src/**/*.test.tsx"],
          environment: "happy-dom",
          environmentOptions: { happyDOM: { url: "http://dashboard.test/" } },
          setupFiles: ["src/api/testing.tsx"],
        },
      },
    ],
  },
});
