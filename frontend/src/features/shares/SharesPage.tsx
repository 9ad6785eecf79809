// What each project is entitled to and what it has now, and the pools that are granted. Operators edit both.
import { useState } from "react";
import { useMe } from "../../api/queries";
import { Loading } from "../../ui/Loading";
import { Problem } from "../../ui/Problem";
import { useTitle } from "../../ui/useTitle";
import { duration, NONE } from "../../ui/words/format";
import { PoolsCard } from "./PoolsCard";
import { type Share, useShares } from "./queries";
import { ShareDialog } from "./ShareDialog";
import { balanceOf, barOf, machines, mostOf } from "./shareWords";

export default function SharesPage() {
  useTitle("Shares");
  const shares = useShares();
  const mayEdit = useMe().data?.is_staff ?? false;
  const rows = shares.data?.results ?? [];
  return (
    <>
      <div className="page-head">
        <div>
          <h1>Shares</h1>
          <p className="muted">
            Projects share the machines by weight. What a project does not need is lent to others, and comes back with
            one hand-over when it is wanted.
          </p>
        </div>
      </div>
      <Problem error={shares.error} />
      {shares.isPending ? <Loading what="Loading shares" /> : null}
      {shares.data && rows.length === 0 ? <p className="none">You are not in any project yet.</p> : null}
      <div className="stack">
        {rows.length > 0 ? <ShareTable rows={rows} mayEdit={mayEdit} /> : null}
        <PoolsCard mayEdit={mayEdit} projects={rows.map(({ project }) => project)} />
      </div>
    </>
  );
}

function ShareTable({ rows, mayEdit }: { rows: readonly Share[]; mayEdit: boolean }) {
  const [edited, setEdited] = useState<Share | null>(null);
  const most = mostOf(rows);
  return (
    <section className="card flush wide" aria-label="Shares by project">
      <table className="table roomy" data-testid="shares">
        <thead>
          <tr>
            <th>Project</th>
            <th className="number">Weight</th>
            <th className="number" title="Machines and agent slots together">
              Quota
            </th>
            <th className="number" title="Machines that roll out or train, each counted by its cost">
              Entitled to
            </th>
            <th className="number" title="Machines that roll out or train">
              Machines
            </th>
            <th className="number" title="Agents run beside other work, so they count for the quota only">
              Agent slots
            </th>
            <th className="share-cell" title="Each machine counts by its cost">
              Machines against entitlement
            </th>
            <th>Balance</th>
            <th className="number" title="Machine time of its jobs in the last hour">
              Last hour
            </th>
            {mayEdit ? (
              <th>
                <span className="visually-hidden">Edit</span>
              </th>
            ) : null}
          </tr>
        </thead>
        <tbody>
          {rows.map((share) => (
            <ShareRow key={share.project} share={share} most={most} onEdit={mayEdit ? () => setEdited(share) : null} />
          ))}
        </tbody>
      </table>
      {edited ? <ShareDialog key={edited.project} share={edited} onClose={() => setEdited(null)} /> : null}
    </section>
  );
}

interface RowProps {
  share: Share;
  most: number;
  onEdit: (() => void) | null;
}

function ShareRow({ share, most, onEdit }: RowProps) {
  const balance = balanceOf(share);
  const bar = barOf(share, most);
  return (
    <tr>
      <td className="nowrap">{share.project}</td>
      <td className="number">{share.weight}</td>
      <td className="number">{share.machine_quota ?? NONE}</td>
      <td className="number">{machines(share.entitled)}</td>
      <td className="number">{machines(share.num_held - share.num_agent_slots)}</td>
      <td className="number">{machines(share.num_agent_slots)}</td>
      <td className="share-cell">
        <div className="share-bar" aria-hidden="true">
          <span className="share-held" style={{ width: `${bar.held * 100}%` }} />
          <span className="share-entitled" style={{ left: `${bar.entitled * 100}%` }} />
        </div>
      </td>
      <td className={`share-balance share-${balance.tone || "even"}`}>{balance.said}</td>
      <td className="number nowrap">{share.machine_s > 0 ? duration(share.machine_s * 1000) : NONE}</td>
      {onEdit ? (
        <td className="number">
          <button type="button" className="link-button" onClick={onEdit}>
            Edit<span className="visually-hidden"> {share.project}</span>…
          </button>
        </td>
      ) : null}
    </tr>
  );
}
