// Shows how a job's machines spend their time: lanes of the last minutes while it runs, and the ledger of its lifetime.
// Both show work for other jobs as a kind of its own.
import { useJobLedger } from "../../../api/queries";
import { keyOf } from "../../../charts/lanes/kinds";
import { LanesCanvas } from "../../../charts/lanes/LanesCanvas";
import { LedgerBar } from "../../../charts/lanes/LedgerBar";
import { DrawnKinds, Legend } from "../../../charts/lanes/Legend";
import { laneOfJob, lanesOf, productiveShare, type Share } from "../../../charts/lanes/lanes";
import { useServerClock, useTopic } from "../../../live/LiveProvider";
import type { JobRow } from "../../../live/rows";
import { type JobTopicState, MACHINES } from "../../../live/topics";
import { Card } from "../../../ui/Cards";
import { decimal, NONE, percent } from "../../../ui/words/format";

const WINDOW_MS = 120_000;
const LEDGER_EVERY_MS = 10_000;
// The last intervals of a job are reported some seconds after its end.
const LEDGER_FINAL_AFTER_MS = 60_000;

export function JobMachines({ job, live }: { job: JobRow; live: JobTopicState }) {
  const isOver = job.ended_at !== null;
  const isFinal = job.ended_at !== null && Date.now() - job.ended_at > LEDGER_FINAL_AFTER_MS;
  const ledger = useJobLedger(job.id, isFinal ? false : LEDGER_EVERY_MS).data;
  const machines = ledger?.machines ?? [];
  const numComputing = machines.filter((machine) => machine.is_computing).length;
  const ledgers = machines
    .toSorted((a, b) => Number(b.is_computing) - Number(a.is_computing))
    .map(({ name, totals }) => ({ name, shares: totals.map(shareOf) }));
  const together = ledger?.totals.map(shareOf) ?? [];
  return (
    <Card
      title="Machines"
      note={
        <span data-testid="productive">
          {productiveText(ledger?.productive_share ?? null, numComputing)} of the time{" "}
          {isOver ? "from the job's start to its end" : "since the job started"}
          {fillText(ledger?.occupancy ?? null, ledger?.waiting_per_slot ?? null)}
        </span>
      }
      className="span"
    >
      {isOver ? null : <JobLanes live={live} />}
      {ledgers.length === 0 ? (
        <p className="none">No machine has worked on this job yet.</p>
      ) : (
        <div className="ledger-list" data-testid="ledger">
          {numComputing > 1 ? <LedgerBar name="Engines and trainers" shares={together} /> : null}
          {ledgers.map(({ name, shares }) => (
            <LedgerBar key={name} name={name} shares={shares} />
          ))}
        </div>
      )}
      {ledgers.length === 0 ? null : <DrawnKinds shown={new Set(ledgers.flatMap(({ shares }) => shares.map(keyOf)))} />}
      {ledgers.length === 0 ? null : <Legend />}
    </Card>
  );
}

/** Machines that only run agents are left out: they are busy even while every agent fails. */
function productiveText(share: number | null, numComputing: number): string {
  const wording = `productive ${share === null ? NONE : percent(share)}`;
  return numComputing > 0 ? `engines and trainers ${wording}` : wording;
}

const LEAST_WAITING = 0.05;

function fillText(occupancy: number | null, waiting: number | null): string {
  if (occupancy === null) return "";
  const queue =
    waiting !== null && waiting >= LEAST_WAITING ? `, with ${decimal(waiting, 1)} requests waiting per slot` : "";
  return `; engines ${percent(occupancy)} full while serving${queue}`;
}

type Total = NonNullable<ReturnType<typeof useJobLedger>["data"]>["totals"][number];

function shareOf({ state, cause, share, duration_s }: Total): Share {
  return { state, cause, share, ms: duration_s * 1000 };
}

function JobLanes({ live }: { live: JobTopicState }) {
  const state = useTopic(MACHINES.name, MACHINES.definition);
  const clock = useServerClock();
  const used = new Set([...live.phases.values()].map((phase) => phase.machine));
  const machines = [...(state?.machines.values() ?? [])].filter((machine) => used.has(machine.name));
  if (!state || machines.length === 0) return null;
  const now = clock();
  const phases = [...live.phases.values()];
  const knownFrom = live.arePhasesWhole ? undefined : Math.min(...phases.map(({ leased_at }) => leased_at));
  const lanes = lanesOf(machines, state.intervals.values(), now - WINDOW_MS, now).map((lane) =>
    laneOfJob(lane, phases, now, knownFrom),
  );
  const wording = lanes.map((lane) => {
    const productive = productiveShare(lane.shares);
    return `${lane.machine.name} ${lane.now}${productive === null ? "" : `, productive ${percent(productive)}`}`;
  });
  return (
    <div className="lanes">
      <div className="lane-names">
        {lanes.map((lane) => (
          <div key={lane.machine.name}>
            <strong title={lane.machine.name}>{lane.machine.name}</strong>
            <span className="muted">{lane.now}</span>
          </div>
        ))}
      </div>
      <LanesCanvas
        lanes={lanes}
        marks={[]}
        windowMs={WINDOW_MS}
        clock={clock}
        label={`The last two minutes: ${wording.join("; ")}`}
      />
    </div>
  );
}
