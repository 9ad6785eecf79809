// Deletions by the policy or by users, finished or in progress, newest first.
import { useSearchParams } from "react-router";
import { Loading } from "../../ui/Loading";
import { Pager } from "../../ui/Pager";
import { Problem } from "../../ui/Problem";
import { StateBadge } from "../../ui/StateBadge";
import { bytes, moment } from "../../ui/words/format";
import { partWords } from "./parts";
import { type Removal, useRemovals } from "./queries";

const PAGE_SIZE = 50;
const BY_POLICY = "retention";

export function Deletions({ project }: { project: string }) {
  const [address, setAddress] = useSearchParams();
  const offset = Number(address.get("offset") ?? 0) || 0;
  const removals = useRemovals({ project, limit: PAGE_SIZE, offset });
  const rows = removals.data?.results ?? [];
  const move = (to: number) => {
    address.set("offset", String(to));
    setAddress(address, { replace: true });
  };
  return (
    <>
      <Problem error={removals.error} />
      {removals.isPending ? <Loading what="Loading deletions" /> : null}
      {removals.data && rows.length === 0 ? (
        <p className="none">Nothing in this project was deleted in the last 90 days.</p>
      ) : null}
      {rows.length > 0 ? <RemovalTable rows={rows} /> : null}
      <Pager offset={offset} limit={PAGE_SIZE} count={removals.data?.count ?? 0} onMove={move} />
    </>
  );
}

function RemovalTable({ rows }: { rows: readonly Removal[] }) {
  return (
    <div className="card flush wide">
      <table className="table" data-testid="deletions">
        <thead>
          <tr>
            <th>Requested</th>
            <th>Item</th>
            <th>Job or upload</th>
            <th className="number">Size</th>
            <th>State</th>
            <th>Reason</th>
            <th>Actor</th>
          </tr>
        </thead>
        <tbody>
          {rows.map((row) => (
            <tr key={`${row.requested_at}-${row.subject_id}-${row.kind}-${row.number}`}>
              <td className="nowrap">{moment(Date.parse(row.requested_at))}</td>
              <td className="nowrap">{partWords(row)}</td>
              <td title={row.subject_id}>{row.name}</td>
              <td className="number nowrap">{bytes(row.num_bytes)}</td>
              <td>
                <StateBadge state={row.finished_at ? "deleted" : "deleting"} />
              </td>
              <td className="why">{row.reason}</td>
              <td className="nowrap">
                {row.author === BY_POLICY ? "retention policy" : row.author.replace(/^user:/, "")}
              </td>
            </tr>
          ))}
        </tbody>
      </table>
    </div>
  );
}
