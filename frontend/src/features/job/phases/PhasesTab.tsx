// The phases of this job, page by page, starting with those that have not ended.
import { Link, useSearchParams } from "react-router";
import { usePhases } from "../../../api/queries";
import type { PhaseRow } from "../../../live/rows";
import { Loading } from "../../../ui/Loading";
import { Pager } from "../../../ui/Pager";
import { Problem } from "../../../ui/Problem";
import { StateBadge } from "../../../ui/StateBadge";
import { duration, integer, moment, NONE, plural } from "../../../ui/words/format";
import type { TabProps } from "../tab";
import { enginesServing, engineWords, lostEngines } from "./engines";
import { gangWords } from "./gangs";
import { pageOf } from "./phaseRows";

const PAGE_SIZE = 50;
const EVERY_MS = 3000;

export function PhasesTab({ jobId, job, live, now }: TabProps & { now: number }) {
  const [address, setAddress] = useSearchParams();
  const offset = Number(address.get("offset") ?? 0) || 0;
  const phases = usePhases(jobId, { limit: PAGE_SIZE, offset }, job.ended_at === null ? EVERY_MS : false);
  const rows = pageOf(phases.data?.results ?? [], live.phases, offset);
  const count = Math.max(phases.data?.count ?? 0, rows.length);
  return (
    <>
      <Problem error={phases.error} />
      {phases.isPending ? <Loading what="Loading phases" /> : null}
      {phases.data && rows.length === 0 ? <p className="none">No machines have been leased yet.</p> : null}
      {phases.data && rows.length > 0 ? (
        <>
          <p className="muted gap-below" data-testid="num-phases">
            {plural(count, "phase")} in total
          </p>
          <PhaseTable jobId={jobId} rows={rows} known={[...rows, ...live.phases.values()]} now={now} />
        </>
      ) : null}
      <Pager
        offset={offset}
        limit={PAGE_SIZE}
        count={count}
        onMove={(to) => setAddress(to ? { offset: String(to) } : {}, { replace: true })}
      />
    </>
  );
}

interface TableProps {
  jobId: string;
  rows: readonly PhaseRow[];
  /** The phases among which the other members of a gang are looked up. */
  known: readonly PhaseRow[];
  now: number;
}

function PhaseTable({ jobId, rows, known, now }: TableProps) {
  return (
    <div className="card flush wide">
      <table className="table" data-testid="phases">
        <thead>
          <tr>
            <th>Leased</th>
            <th>Machine</th>
            <th>Role</th>
            <th>State</th>
            <th className="number">Duration</th>
            <th className="number">Version</th>
            <th className="number">Fence</th>
            <th>Log</th>
            <th>Reason</th>
          </tr>
        </thead>
        <tbody>
          {rows.map((phase) => (
            <tr key={phase.id}>
              <td className="nowrap">{moment(phase.leased_at)}</td>
              <td>{phase.machine}</td>
              <td>
                {phase.role} <span className="muted">{gangWords(phase, known)}</span>
              </td>
              <td>
                <StateBadge state={phase.state} />
              </td>
              <td className="number nowrap">{duration((phase.ended_at ?? now) - phase.leased_at)}</td>
              <td className="number" title={phase.engines.length > 1 ? engineWords(phase) : undefined}>
                {integer(phase.served_version)}
                {phase.engines.length > 1 ? <span className="muted"> × {enginesServing(phase)}</span> : null}
              </td>
              <td className="number">{integer(phase.fence)}</td>
              <td>
                <Link
                  to={`/jobs/${jobId}/logs?phase=${phase.id}`}
                  aria-label={`Log of the ${phase.role} phase on ${phase.machine}, fence ${phase.fence}`}
                >
                  Log
                </Link>
              </td>
              <td className="why">{[phase.reason, ...lostEngines(phase)].filter(Boolean).join("; ") || NONE}</td>
            </tr>
          ))}
        </tbody>
      </table>
    </div>
  );
}
