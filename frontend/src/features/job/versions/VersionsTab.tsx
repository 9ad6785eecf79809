// The policy versions a job has published, newest first.
import { useVersions } from "../../../api/queries";
import type { Columns } from "../../../ui/table/columns";
import { PagedTable, usePage } from "../../../ui/table/PagedTable";
import { bytes, integer, moment, NONE } from "../../../ui/words/format";
import type { TabProps } from "../tab";

const PAGE_SIZE = 50;

export function VersionsTab({ jobId, job }: TabProps) {
  const { page } = usePage(PAGE_SIZE);
  // The key includes the newest version, so a publication refetches the page.
  const versions = useVersions(jobId, page, job.latest_version);
  return (
    <PagedTable
      read={versions}
      what="versions"
      none="No version has been published yet: the initial model is still loading."
      limit={PAGE_SIZE}
      columns={columnsOf(jobId, job.best_version)}
      keyOf={(row) => row.version}
      testId="versions"
    />
  );
}

type Version = NonNullable<ReturnType<typeof useVersions>["data"]>["results"][number];

function columnsOf(jobId: string, best: number | null): Columns<Version> {
  return [
    { head: "Version", isNumber: true, cell: (row) => integer(row.version) },
    { head: "Parent", isNumber: true, cell: (row) => integer(row.parent_version) },
    { head: "Optimizer step", isNumber: true, cell: (row) => integer(row.optimizer_step) },
    { head: "Update", isNumber: true, cell: (row) => integer(row.batch_number) },
    { head: "Published", className: "nowrap", cell: (row) => moment(Date.parse(row.published_at)) },
    { head: "Size", isNumber: true, cell: (row) => (row.num_bytes ? bytes(row.num_bytes) : NONE) },
    { head: "Kept", cell: (row) => keptText(row, row.version === best) },
    {
      head: "Export",
      cell: (row) =>
        row.deleted_at === null ? (
          <a
            download
            href={`/api/v1/jobs/${jobId}/versions/${row.version}/export`}
            title="Tar archive of a folder that transformers can load"
          >
            {`version-${row.version}.tar`}
          </a>
        ) : (
          NONE
        ),
    },
  ];
}

function keptText(row: Version, isBest: boolean): string {
  if (row.deleted_at !== null) return "weights deleted";
  const also = { checkpoint: row.has_checkpoint, pinned: row.is_pinned, "best on held-out tasks": isBest };
  return ["weights", ...Object.entries(also).flatMap(([word, isSo]) => (isSo ? [word] : []))].join(", ");
}
