// Jobs by the space they use, largest first, with a way to delete them or parts of them.
import { useState } from "react";
import { Link } from "react-router";
import { Button } from "../../ui/Button";
import { StateBadge } from "../../ui/StateBadge";
import type { Columns } from "../../ui/table/columns";
import { PagedTable, usePage } from "../../ui/table/PagedTable";
import { bytes, moment, NONE } from "../../ui/words/format";
import { JobPartsDialog } from "./JobPartsDialog";
import { type StoredJob, useStoredJobs } from "./queries";
import type { TabProps } from "./tab";

const PAGE_SIZE = 25;

export function StoredJobs({ project, mayDelete }: TabProps) {
  const { page } = usePage(PAGE_SIZE);
  const [opened, setOpened] = useState<StoredJob>();
  return (
    <>
      <PagedTable
        read={useStoredJobs({ project, ...page })}
        what="jobs"
        none="No job has stored anything yet."
        limit={PAGE_SIZE}
        words={["Larger", "Smaller"]}
        columns={columnsOf(mayDelete, setOpened)}
        keyOf={(job) => job.id}
        testId="stored-jobs"
      />
      {opened ? <JobPartsDialog job={opened} project={project} onClose={() => setOpened(undefined)} /> : null}
    </>
  );
}

function columnsOf(mayDelete: boolean, onOpen: (job: StoredJob) => void): Columns<StoredJob> {
  return [
    { head: "Job", className: "job-name", cell: (job) => <Link to={`/jobs/${job.id}`}>{job.name}</Link> },
    { head: "State", cell: (job) => <StateBadge state={job.state} /> },
    {
      head: "Ended",
      className: "nowrap",
      cell: (job) => (job.ended_at ? moment(Date.parse(job.ended_at)) : NONE),
    },
    { head: "Checkpoints", isNumber: true, className: "nowrap", cell: (job) => bytes(job.checkpoints_bytes) },
    { head: "Policy versions", isNumber: true, className: "nowrap", cell: (job) => bytes(job.versions_bytes) },
    {
      head: "Database",
      isNumber: true,
      className: "nowrap",
      title: () => "Trajectories, logs, events and metrics",
      cell: (job) => bytes(job.rows_bytes),
    },
    { head: "Total", isNumber: true, className: "nowrap", cell: (job) => <strong>{bytes(job.num_bytes)}</strong> },
    {
      head: "Delete",
      isHeadHidden: true,
      isNumber: true,
      cell: (job) =>
        mayDelete && job.ended_at ? (
          <Button look="link" aria-label={`Delete ${job.name} or parts of it`} onClick={() => onOpen(job)}>
            Delete…
          </Button>
        ) : null,
    },
  ];
}
