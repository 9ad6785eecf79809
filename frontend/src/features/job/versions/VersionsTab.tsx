// The policy versions a job has published, newest first.
import { useSearchParams } from "react-router";
import { useVersions } from "../../../api/queries";
import { Loading } from "../../../ui/Loading";
import { Pager } from "../../../ui/Pager";
import { Problem } from "../../../ui/Problem";
import { bytes, integer, moment, NONE } from "../../../ui/words/format";
import type { TabProps } from "../tab";

const PAGE_SIZE = 50;

export function VersionsTab({ jobId, job }: TabProps) {
  const [address, setAddress] = useSearchParams();
  const offset = Number(address.get("offset") ?? 0) || 0;
  // The newest version is part of the key, so a publication refetches the page.
  const versions = useVersions(jobId, { limit: PAGE_SIZE, offset }, job.latest_version);
  const rows = versions.data?.results ?? [];
  return (
    <>
      <Problem error={versions.error} />
      {versions.isPending ? <Loading what="Loading versions" /> : null}
      {versions.data && rows.length === 0 ? (
        <p className="none">No version has been published yet: the initial model is still loading.</p>
      ) : null}
      {rows.length > 0 ? (
        <div className="card flush wide">
          <table className="table" data-testid="versions">
            <thead>
              <tr>
                <th className="number">Version</th>
                <th className="number">Parent</th>
                <th className="number">Optimizer step</th>
                <th className="number">Update</th>
                <th>Published</th>
                <th className="number">Size</th>
                <th>Kept</th>
                <th>Export</th>
              </tr>
            </thead>
            <tbody>
              {rows.map((row) => (
                <tr key={row.version}>
                  <td className="number">{integer(row.version)}</td>
                  <td className="number">{integer(row.parent_version)}</td>
                  <td className="number">{integer(row.optimizer_step)}</td>
                  <td className="number">{integer(row.batch_number)}</td>
                  <td className="nowrap">{moment(Date.parse(row.published_at))}</td>
                  <td className="number">{row.num_bytes ? bytes(row.num_bytes) : NONE}</td>
                  <td>{keptSaid(row, row.version === job.best_version)}</td>
                  <td>
                    {row.deleted_at === null ? (
                      <a
                        download
                        href={`/api/v1/jobs/${jobId}/versions/${row.version}/export`}
                        title="Tar archive of a folder that transformers can load"
                      >
                        {`version-${row.version}.tar`}
                      </a>
                    ) : (
                      NONE
                    )}
                  </td>
                </tr>
              ))}
            </tbody>
          </table>
        </div>
      ) : null}
      <Pager
        offset={offset}
        limit={PAGE_SIZE}
        count={versions.data?.count ?? 0}
        onMove={(to) => setAddress(to ? { offset: String(to) } : {}, { replace: true })}
      />
    </>
  );
}

interface Kept {
  deleted_at: string | null;
  is_pinned: boolean;
  has_checkpoint: boolean;
}

function keptSaid(row: Kept, isBest: boolean): string {
  if (row.deleted_at !== null) return "weights deleted";
  const also = { checkpoint: row.has_checkpoint, pinned: row.is_pinned, "best on held-out tasks": isBest };
  return ["weights", ...Object.entries(also).flatMap(([word, isSo]) => (isSo ? [word] : []))].join(", ");
}
