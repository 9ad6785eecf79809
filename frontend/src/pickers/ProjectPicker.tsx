// Chooses the project of a page, which the URL names as `?project=<slug>`.
import { useSearchParams } from "react-router";
import type { Me } from "../api/queries";
import { NotFound } from "../ui/NotFound";

export type MyProject = Me["projects"][number];

/** The requested project, else `default`, else the first. Undefined if the user is not in the requested one. */
export function chosenProject(projects: readonly MyProject[], asked: string | null): MyProject | undefined {
  if (asked) return projects.find(({ slug }) => slug === asked);
  return projects.find(({ slug }) => slug === "default") ?? projects[0];
}

export function NoProject({ asked }: { asked: string | null }) {
  if (asked) return <NotFound detail={`You are not a member of a project named ${asked}.`} />;
  return <p className="none">You are not in any project yet. A project owner can add you.</p>;
}

/** Hidden for users who are in only one project. */
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
