// Disk usage, the retention policy and manual deletion, for one project at a time. The URL names the project.
import { NavLink, Route, Routes, useSearchParams } from "react-router";
import { useMe } from "../../api/queries";
import { chosenProject, NoProject, ProjectPicker } from "../../pickers/ProjectPicker";
import { Cards } from "../../ui/Cards";
import { Loading } from "../../ui/Loading";
import { NotFound } from "../../ui/NotFound";
import { Problem } from "../../ui/Problem";
import { useTitle } from "../../ui/useTitle";
import { Deletions } from "./Deletions";
import { PlanCard } from "./PlanCard";
import { PolicyCard } from "./PolicyCard";
import { StoredJobs } from "./StoredJobs";
import { StoredUploads } from "./StoredUploads";
import { UsageTable } from "./UsageTable";

const TABS = [
  ["", "Overview"],
  ["jobs", "Jobs"],
  ["uploads", "Uploads"],
  ["deletions", "Deletions"],
] as const;

export default function StoragePage() {
  useTitle("Storage");
  const me = useMe();
  const [address] = useSearchParams();
  if (me.error) return <Problem error={me.error} />;
  if (!me.data) return <Loading />;
  const { projects, is_staff } = me.data;
  const project = chosenProject(projects, address.get("project"));
  if (!project) return <NoProject asked={address.get("project")} />;
  const tab = { project: project.slug, mayDelete: project.may_write };
  const where = projects.length > 1 ? `?project=${project.slug}` : "";
  return (
    <>
      <div className="page-head">
        <div>
          <h1>Storage</h1>
          <p className="muted">See what uses disk space, how long it is kept, and what you can delete.</p>
        </div>
        <ProjectPicker projects={projects} chosen={project.slug} />
      </div>
      <nav className="tabs" aria-label="Storage">
        {TABS.map(([path, word]) => (
          <NavLink key={path} to={`/storage${path ? `/${path}` : ""}${where}`} end>
            {word}
          </NavLink>
        ))}
      </nav>
      <Routes>
        <Route
          index
          element={
            <Cards>
              <UsageTable chosen={project.slug} />
              <PlanCard project={project.slug} />
              <PolicyCard project={project.slug} isOwner={project.role === "owner"} isOperator={is_staff} />
            </Cards>
          }
        />
        <Route path="jobs" element={<StoredJobs {...tab} />} />
        <Route path="uploads" element={<StoredUploads {...tab} />} />
        <Route path="deletions" element={<Deletions project={project.slug} />} />
        <Route path="*" element={<NotFound />} />
      </Routes>
    </>
  );
}
