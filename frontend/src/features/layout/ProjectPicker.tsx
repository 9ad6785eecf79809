// Pages of one project: which one is in the address, as `?project=<slug>`.
import { useSearchParams } from "react-router";
import type { Me } from "../../api/queries";
import { NotFound } from "./NotFound";

export type MyProject = Me["projects"][number];

/** The one that is asked for; otherwise `default`, or the first. Undefined if the caller is not in it. */
export function chosenProject(projects: readonly MyProject[], asked: string | null): MyProject | undefined {
  if (asked) return projects.find(({ slug }) => slug === asked);
  return projects.find(({ slug }) => slug === "default") ?? projects[0];
}

export function NoProject({ asked }: { asked: string | null }) {
  if (asked) return <NotFound detail={`You are in no project named ${asked}.`} />;
  return <p className="none">You are in no project yet. An owner of a project can add you.</p>;
}

/** Nothing to choose for whoever is in one project alone. */
export function ProjectPicker({ projects, chosen }: { projects: readonly MyProject[]; chosen: string }) {
  const [, setAddress] = useSearchParams();
  if (projects.length < 2) return null;
  return (
    <label className="picker">
      <span className="muted">Project</span>
      <select value={chosen} onChange={(event) => setAddress({ project: event.target.value })}>
        {projects.map(({ slug, name }) => (
          <option key={slug} value={slug}>
            {name}
          </option>
        ))}
      </select>
    </label>
  );
}
