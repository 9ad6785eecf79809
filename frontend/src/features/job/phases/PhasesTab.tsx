// The phases of this job, page by page, starting with those that have not ended.
import { Link } from "react-router";
import { usePhases } from "../../../api/queries";
import type { PhaseRow } from "../../../live/rows";
import { StateBadge } from "../../../ui/StateBadge";
import type { Columns } from "../../../ui/table/columns";
import { PagedTable, usePage } from "../../../ui/table/PagedTable";
import { duration, integer, moment, NONE, plural } from "../../../ui/words/format";
import type { TabProps } from "../tab";
import { enginesServing, engineWords, lostEngines } from "./engines";
import { gangWords } from "./gangs";
import { pageOf } from "./phaseRows";

const PAGE_SIZE = 50;
const EVERY_MS = 3000;

export function PhasesTab({ jobId, job, live, now }: TabProps & { now: number }) {
  const { page } = usePage(PAGE_SIZE);
  const phases = usePhases(jobId, page, job.ended_at === null ? EVERY_MS : false);
  const results = pageOf(phases.data?.results ?? [], live.phases, page.offset);
  const count = Math.max(phases.data?.count ?? 0, results.length);
  const read = { ...phases, data: phases.data && { results, count } };
  return (
    <>
      {read.data && count > 0 ? (
        <p className="muted gap-below" data-testid="num-phases">
          {plural(count, "phase")} in total
        </p>
      ) : null}
      <PagedTable
        read={read}
        what="phases"
        none="No machines have been leased yet."
        limit={PAGE_SIZE}
        columns={columnsOf(jobId, [...results, ...live.phases.values()], now)}
        keyOf={(phase) => phase.id}
        testId="phases"
      />
    </>
  );
}

/** `known` are the phases among which the other members of a gang are looked up. */
function columnsOf(jobId: string, known: readonly PhaseRow[], now: number): Columns<PhaseRow> {
  return [
    { head: "Leased", className: "nowrap", cell: (phase) => moment(phase.leased_at) },
    { head: "Machine", cell: (phase) => phase.machine },
    {
      head: "Role",
      cell: (phase) => (
        <>
          {phase.role} <span className="muted">{gangWords(phase, known)}</span>
        </>
      ),
    },
    { head: "State", cell: (phase) => <StateBadge state={phase.state} /> },
    {
      head: "Duration",
      isNumber: true,
      className: "nowrap",
      cell: (phase) => duration((phase.ended_at ?? now) - phase.leased_at),
    },
    {
      head: "Version",
      isNumber: true,
      title: (phase) => (phase.engines.length > 1 ? engineWords(phase) : undefined),
      cell: (phase) => (
        <>
          {integer(phase.served_version)}
          {phase.engines.length > 1 ? <span className="muted"> × {enginesServing(phase)}</span> : null}
        </>
      ),
    },
    { head: "Fence", isNumber: true, cell: (phase) => integer(phase.fence) },
    {
      head: "Log",
      cell: (phase) => (
        <Link
          to={`/jobs/${jobId}/logs?phase=${phase.id}`}
          aria-label={`Log of the ${phase.role} phase on ${phase.machine}, fence ${phase.fence}`}
        >
          Log
        </Link>
      ),
    },
    {
      head: "Reason",
      className: "why",
      cell: (phase) => [phase.reason, ...lostEngines(phase)].filter(Boolean).join("; ") || NONE,
    },
  ];
}
