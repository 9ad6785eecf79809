// Jobs by the space they use, largest first, with a way to delete them or parts of them.
import { useState } from "react";
import { Link, useSearchParams } from "react-router";
import { Loading } from "../../ui/Loading";
import { Pager } from "../../ui/Pager";
import { Problem } from "../../ui/Problem";
import { StateBadge } from "../../ui/StateBadge";
import { bytes, moment, NONE } from "../../ui/words/format";
import { JobPartsDialog } from "./JobPartsDialog";
import { type StoredJob, useStoredJobs } from "./queries";
import type { TabProps } from "./tab";

const PAGE_SIZE = 25;

export function StoredJobs({ project, mayDelete }: TabProps) {
  const [address, setAddress] = useSearchParams();
  const offset = Number(address.get("offset") ?? 0) || 0;
  const jobs = useStoredJobs({ project, limit: PAGE_SIZE, offset });
  const rows = jobs.data?.results ?? [];
  const move = (to: number) => {
    address.set("offset", String(to));
    setAddress(address, { replace: true });
  };
  return (
    <>
      <Problem error={jobs.error} />
      {jobs.isPending ? <Loading what="Loading jobs" /> : null}
      {jobs.data && rows.length === 0 ? <p className="none">No job has stored anything yet.</p> : null}
      {rows.length > 0 ? <StoredJobTable rows={rows} project={project} mayDelete={mayDelete} /> : null}
      <Pager
        offset={offset}
        limit={PAGE_SIZE}
        count={jobs.data?.count ?? 0}
        onMove={move}
        words={["Larger", "Smaller"]}
      />
    </>
  );
}

function StoredJobTable({ rows, project, mayDelete }: TabProps & { rows: readonly StoredJob[] }) {
  const [opened, setOpened] = useState<StoredJob>();
  return (
    <div className="card flush wide">
      <table className="table" data-testid="stored-jobs">
        <thead>
          <tr>
            <th>Job</th>
            <th>State</th>
            <th>Ended</th>
            <th className="number">Checkpoints</th>
            <th className="number">Policy versions</th>
            <th className="number">Database</th>
            <th className="number">Total</th>
            <th>
              <span className="visually-hidden">Delete</span>
            </th>
          </tr>
        </thead>
        <tbody>
          {rows.map((job) => (
            <tr key={job.id}>
              <td className="job-name">
                <Link to={`/jobs/${job.id}`}>{job.name}</Link>
              </td>
              <td>
                <StateBadge state={job.state} />
              </td>
              <td className="nowrap">{job.ended_at ? moment(Date.parse(job.ended_at)) : NONE}</td>
              <td className="number nowrap">{bytes(job.checkpoints_bytes)}</td>
              <td className="number nowrap">{bytes(job.versions_bytes)}</td>
              <td className="number nowrap" title="Trajectories, logs, events and metrics">
                {bytes(job.rows_bytes)}
              </td>
              <td className="number nowrap">
                <strong>{bytes(job.num_bytes)}</strong>
              </td>
              <td className="number">
                {mayDelete && job.ended_at ? (
                  <button
                    type="button"
                    className="link-button"
                    aria-label={`Delete ${job.name} or parts of it`}
                    onClick={() => setOpened(job)}
                  >
                    Delete…
                  </button>
                ) : null}
              </td>
            </tr>
          ))}
        </tbody>
      </table>
      {opened ? <JobPartsDialog job={opened} project={project} onClose={() => setOpened(undefined)} /> : null}
    </div>
  );
}
