// The leases of machines to this job, live ones first.
import { Link } from "react-router";
import type { PhaseRow } from "../../live/rows";
import { clock, duration, integer, NONE } from "../../ui/format";
import { StateBadge } from "../../ui/StateBadge";
import { gangWords } from "./gangs";
import type { TabProps } from "./JobPage";

export function phasesInOrder(phases: Iterable<PhaseRow>): PhaseRow[] {
  const isOver = (phase: PhaseRow) => Number(phase.ended_at !== null);
  return [...phases].sort((a, b) => isOver(a) - isOver(b) || b.leased_at - a.leased_at);
}

export function PhasesTab({ jobId, live, now }: TabProps & { now: number }) {
  const rows = phasesInOrder(live.phases.values());
  if (rows.length === 0) return <p className="none">No machine has been leased yet.</p>;
  return (
    <div className="card flush wide">
      <table className="table">
        <thead>
          <tr>
            <th>Leased</th>
            <th>Machine</th>
            <th>Role</th>
            <th>State</th>
            <th className="number">For</th>
            <th className="number">Version</th>
            <th className="number">Fence</th>
            <th>Log</th>
            <th>Why</th>
          </tr>
        </thead>
        <tbody>
          {rows.map((phase) => (
            <tr key={phase.id}>
              <td className="nowrap">{clock(phase.leased_at)}</td>
              <td>{phase.machine}</td>
              <td>
                {phase.role} <span className="muted">{gangWords(phase, rows)}</span>
              </td>
              <td>
                <StateBadge state={phase.state} />
              </td>
              <td className="number">{duration((phase.ended_at ?? now) - phase.leased_at)}</td>
              <td className="number">{integer(phase.served_version)}</td>
              <td className="number">{integer(phase.fence)}</td>
              <td>
                <Link
                  to={`/jobs/${jobId}/logs?phase=${phase.id}`}
                  aria-label={`Log of the ${phase.role} phase on ${phase.machine}, fence ${phase.fence}`}
                >
                  log
                </Link>
              </td>
              <td className="why">{phase.reason || NONE}</td>
            </tr>
          ))}
        </tbody>
      </table>
    </div>
  );
}
