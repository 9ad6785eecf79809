// The sessions of a group, by slot and attempt.
import { Link } from "react-router";
import type { SessionRow } from "../../trajectory/wire/wire";
import { StateBadge } from "../../ui/StateBadge";
import type { Columns } from "../../ui/table/columns";
import { Table } from "../../ui/table/Table";
import { decimal, integer, NONE } from "../../ui/words/format";

export function SessionTable({ groupId, sessions }: { groupId: string; sessions: readonly SessionRow[] }) {
  if (sessions.length === 0) return <p className="muted">No sessions have been opened yet.</p>;
  return <Table rows={sessions} columns={columnsOf(groupId)} keyOf={(row) => row.id} sortedBy="sort" />;
}

function columnsOf(groupId: string): Columns<SessionRow> {
  return [
    { head: "Slot", isNumber: true, order: (row) => row.slot, cell: (row) => row.slot + 1 },
    { head: "Attempt", isNumber: true, order: (row) => row.attempt, cell: (row) => row.attempt },
    { head: "State", order: (row) => row.state, cell: (row) => <StateBadge state={row.state} /> },
    { head: "Reward", isNumber: true, order: (row) => row.reward, cell: (row) => decimal(row.reward) },
    { head: "Advantage", isNumber: true, order: (row) => row.advantage, cell: (row) => decimal(row.advantage) },
    { head: "Turns", isNumber: true, order: (row) => row.num_turns, cell: (row) => integer(row.num_turns) },
    {
      head: "Sampled tokens",
      isNumber: true,
      order: (row) => row.num_sampled_tokens,
      cell: (row) => integer(row.num_sampled_tokens),
    },
    {
      head: "Session",
      cell: (row) => (
        <Link to={`/groups/${groupId}?session=${row.id}`} className="mono">
          {row.id}
        </Link>
      ),
    },
    { head: "Output", cell: (row) => <Link to={`/sessions/${row.id}`}>Output</Link> },
    { head: "Reason", className: "why", cell: (row) => row.reason || NONE },
  ];
}
