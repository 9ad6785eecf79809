// The machines that each project is entitled to and has now, and the pools that are granted. Operators edit both.
import { useState } from "react";
import { useMe } from "../../api/queries";
import { Button } from "../../ui/Button";
import { Cards } from "../../ui/Cards";
import { Loading } from "../../ui/Loading";
import { Problem } from "../../ui/Problem";
import type { Columns } from "../../ui/table/columns";
import { Table } from "../../ui/table/Table";
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
      <Cards>
        {rows.length > 0 ? <ShareTable rows={rows} mayEdit={mayEdit} /> : null}
        <PoolsCard mayEdit={mayEdit} projects={rows.map(({ project }) => project)} />
      </Cards>
    </>
  );
}

function ShareTable({ rows, mayEdit }: { rows: readonly Share[]; mayEdit: boolean }) {
  const [edited, setEdited] = useState<Share | null>(null);
  return (
    <section aria-label="Shares by project">
      <Table
        rows={rows}
        columns={columnsOf(mostOf(rows), mayEdit ? setEdited : null)}
        keyOf={(share) => share.project}
        testId="shares"
        className="roomy"
        sortedBy="sort"
      />
      {edited ? <ShareDialog key={edited.project} share={edited} onClose={() => setEdited(null)} /> : null}
    </section>
  );
}

const ownMachines = (share: Share) => share.num_held - share.num_agent_slots;

function columnsOf(most: number, onEdit: ((share: Share) => void) | null): Columns<Share> {
  return [
    { head: "Project", className: "nowrap", order: (share) => share.project, cell: (share) => share.project },
    { head: "Weight", isNumber: true, order: (share) => share.weight, cell: (share) => share.weight },
    {
      head: "Quota",
      help: "Machines and agent slots together",
      isNumber: true,
      order: (share) => share.machine_quota,
      cell: (share) => share.machine_quota ?? NONE,
    },
    {
      head: "Entitled to",
      help: "Machines that roll out or train, each counted by its cost",
      isNumber: true,
      order: (share) => share.entitled,
      cell: (share) => machines(share.entitled),
    },
    {
      head: "Machines",
      help: "Machines that roll out or train",
      isNumber: true,
      order: ownMachines,
      cell: (share) => machines(ownMachines(share)),
    },
    {
      head: "Agent slots",
      help: "Agents run beside other work, so they count for the quota only",
      isNumber: true,
      order: (share) => share.num_agent_slots,
      cell: (share) => machines(share.num_agent_slots),
    },
    {
      head: "Machines against entitlement",
      help: "Each machine counts by its cost",
      className: "share-cell",
      cell: (share) => <ShareBar share={share} most={most} />,
    },
    { head: "Balance", order: (share) => share.num_borrowed, cell: (share) => <Balance share={share} /> },
    {
      head: "Last hour",
      help: "Machine time of its jobs in the last hour",
      isNumber: true,
      className: "nowrap",
      order: (share) => share.machine_s,
      cell: (share) => (share.machine_s > 0 ? duration(share.machine_s * 1000) : NONE),
    },
    onEdit && {
      head: "Edit",
      isHeadHidden: true,
      isNumber: true,
      cell: (share) => (
        <Button look="link" onClick={() => onEdit(share)}>
          Edit<span className="visually-hidden"> {share.project}</span>…
        </Button>
      ),
    },
  ];
}

function ShareBar({ share, most }: { share: Share; most: number }) {
  const bar = barOf(share, most);
  return (
    <div className="share-bar" aria-hidden="true">
      <span className="share-owned" style={{ width: `${bar.owned * 100}%` }} />
      <span className="share-entitled" style={{ left: `${bar.entitled * 100}%` }} />
    </div>
  );
}

function Balance({ share }: { share: Share }) {
  const { tone, wording } = balanceOf(share);
  return <span className={`share-balance share-${tone || "even"}`}>{wording}</span>;
}
