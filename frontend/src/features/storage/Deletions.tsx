// Deletions by the policy or by users, finished or in progress, newest first.
import { StateBadge } from "../../ui/StateBadge";
import type { Columns } from "../../ui/table/columns";
import { PagedTable, usePage } from "../../ui/table/PagedTable";
import { bytes, moment } from "../../ui/words/format";
import { partWords } from "./parts";
import { type Removal, useRemovals } from "./queries";

const PAGE_SIZE = 50;
const BY_POLICY = "retention";

export function Deletions({ project }: { project: string }) {
  const { page } = usePage(PAGE_SIZE);
  return (
    <PagedTable
      read={useRemovals({ project, ...page })}
      what="deletions"
      none="Nothing in this project was deleted in the last 90 days."
      limit={PAGE_SIZE}
      columns={COLUMNS}
      keyOf={(row) => `${row.requested_at}-${row.subject_id}-${row.kind}-${row.number}`}
      testId="deletions"
    />
  );
}

const COLUMNS: Columns<Removal> = [
  { head: "Requested", className: "nowrap", cell: (row) => moment(Date.parse(row.requested_at)) },
  { head: "Item", className: "nowrap", cell: partWords },
  { head: "Job or upload", title: (row) => row.subject_id, cell: (row) => row.name },
  { head: "Size", isNumber: true, className: "nowrap", cell: (row) => bytes(row.num_bytes) },
  { head: "State", cell: (row) => <StateBadge state={row.finished_at ? "deleted" : "deleting"} /> },
  { head: "Reason", className: "why", cell: (row) => row.reason },
  {
    head: "Actor",
    className: "nowrap",
    cell: (row) => (row.author === BY_POLICY ? "retention policy" : row.author.replace(/^user:/, "")),
  },
];
