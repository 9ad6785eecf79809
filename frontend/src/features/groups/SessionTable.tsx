// The sessions of a group, by slot and attempt.
import { Link } from "react-router";
import type { SessionRow } from "../../trajectory/wire/wire";
import { StateBadge } from "../../ui/StateBadge";
import { decimal, integer, NONE } from "../../ui/words/format";

export function SessionTable({ groupId, sessions }: { groupId: string; sessions: SessionRow[] }) {
  if (sessions.length === 0) return <p className="muted">No sessions have been opened yet.</p>;
  return (
    <div className="group-sessions">
      <table>
        <thead>
          <tr>
            <th className="number">Slot</th>
            <th className="number">Attempt</th>
            <th>State</th>
            <th className="number">Reward</th>
            <th className="number">Advantage</th>
            <th className="number">Turns</th>
            <th className="number">Sampled tokens</th>
            <th>Session</th>
            <th>Output</th>
            <th>Reason</th>
          </tr>
        </thead>
        <tbody>
          {sessions.map((row) => (
            <tr key={row.id}>
              <td className="number">{row.slot + 1}</td>
              <td className="number">{row.attempt}</td>
              <td>
                <StateBadge state={row.state} />
              </td>
              <td className="number">{decimal(row.reward)}</td>
              <td className="number">{decimal(row.advantage)}</td>
              <td className="number">{integer(row.num_turns)}</td>
              <td className="number">{integer(row.num_sampled_tokens)}</td>
              <td>
                <Link to={`/groups/${groupId}?session=${row.id}`} className="mono">
                  {row.id}
                </Link>
              </td>
              <td>
                <Link to={`/sessions/${row.id}`}>Output</Link>
              </td>
              <td>{row.reason || NONE}</td>
            </tr>
          ))}
        </tbody>
      </table>
    </div>
  );
}
