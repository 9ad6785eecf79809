// Machines: their tags, role and job, and a lane over time for each, with its edits marked.
import { useQueries } from "@tanstack/react-query";
import { useMemo, useState } from "react";
import { api, bodyOf } from "../../api/client";
import { useJobsOfMachines, useMe } from "../../api/queries";
import { keyOf, kindOf } from "../../charts/lanes/kinds";
import { LanesCanvas, type Mark } from "../../charts/lanes/LanesCanvas";
import { DrawnKinds, Legend } from "../../charts/lanes/Legend";
import { type LaneInterval, lanesOf, productiveShare, spansOfLedger } from "../../charts/lanes/lanes";
import { useServerClock, useServerNow, useTopic } from "../../live/LiveProvider";
import type { MachineRow } from "../../live/rows";
import { MACHINES, type MachinesState } from "../../live/topics";
import { Card, Cards } from "../../ui/Cards";
import { SearchField } from "../../ui/fields/SearchField";
import { Segments } from "../../ui/fields/Segments";
import { Loading } from "../../ui/Loading";
import { Snippet } from "../../ui/Snippet";
import { useTitle } from "../../ui/useTitle";
import { oneOf, TEXT, useViewState } from "../../ui/useViewState";
import { percent } from "../../ui/words/format";
import { EditDialog } from "./EditDialog";
import { machinesFound } from "./hardware";
import { MachineTable } from "./MachineTable";
import { editText } from "./tags";

const WINDOWS = ["2 min", "15 min", "1 h"] as const;
const WINDOW = oneOf(WINDOWS);
const WINDOWS_MS: Readonly<Record<(typeof WINDOWS)[number], number>> = {
  "2 min": 120_000,
  "15 min": 900_000,
  "1 h": 3_600_000,
};

// From this many machines on, the page offers a search.
const MANY = 12;
const ADDED = ["add"];
const NO_JOBS: ReadonlyMap<string, readonly { id: string; name: string }[]> = new Map();

export default function MachinesPage() {
  useTitle("Machines");
  const state = useTopic(MACHINES.name, MACHINES.definition);
  const mayEdit = useMe().data?.is_staff ?? false;
  const [search, setSearch] = useViewState("q", TEXT);
  // Another page may name the machine to edit, and the tags to add: `?edit=<id>&add=<tag>,<tag>`.
  const [editedId, setEditedId] = useViewState("edit", TEXT, ADDED);
  const [added] = useViewState("add", TEXT);
  const jobs = useJobsOfMachines().data ?? NO_JOBS;
  if (!state) return <Loading what="Loading machines" />;
  const all = [...state.machines.values()].sort((a, b) => a.name.localeCompare(b.name));
  const machines = machinesFound(all, search);
  const edited = all.find((machine) => machine.id === editedId);
  return (
    <>
      <div className="page-head">
        <h1>Machines</h1>
        {all.length >= MANY ? (
          <SearchField
            label="Search machines"
            placeholder="Name, tag, role or state"
            value={search}
            onChange={setSearch}
          />
        ) : null}
      </div>
      {all.length === 0 ? (
        <NoMachines />
      ) : machines.length === 0 ? (
        <p className="none">No machines match.</p>
      ) : (
        <Cards>
          <MachineTable machines={machines} onEdit={mayEdit ? setEditedId : null} jobs={jobs} />
          <Lanes machines={machines} state={state} />
        </Cards>
      )}
      {edited && mayEdit ? (
        <EditDialog key={edited.id} machine={edited} added={added} onClose={() => setEditedId("")} />
      ) : null}
    </>
  );
}

function Lanes({ machines, state }: { machines: readonly MachineRow[]; state: MachinesState }) {
  const [window, setWindow] = useViewState("window", WINDOW);
  const windowMs = WINDOWS_MS[window];
  const clock = useServerClock();
  const now = useServerNow(1000);
  const older = useOlderIntervals(state.machines.size, windowMs);
  const intervals = useMemo(() => merged(older.intervals, state), [older.intervals, state]);
  const lanes = lanesOf(machines, intervals, now - windowMs, now);
  const marks: Mark[] = [...state.edits.values()].map((edit) => ({
    machine: edit.machine,
    at: edit.at,
    wording: editText(edit),
  }));
  const wording = lanes.map((lane) => `${lane.machine.name}: ${lane.now}`).join("; ");
  return (
    <Card
      title="Activity"
      note={`▾ marks an edit${older.cut.length > 0 ? `; the oldest time of ${older.cut.join(", ")} is not shown` : ""}`}
      end={<Segments legend="Time window" values={WINDOWS} value={window} onChange={setWindow} isSmall />}
    >
      <div className="lanes">
        <div className="lane-names">
          {lanes.map((lane) => {
            const productive = productiveShare(lane.shares);
            const { open_state, open_cause } = lane.machine;
            return (
              <div key={lane.machine.name} data-testid={`lane-${lane.machine.name}`}>
                <strong title={lane.machine.name}>{lane.machine.name}</strong>
                <span className="muted" title={kindOf(open_state, open_cause).meaning}>
                  {lane.now}
                  {productive === null ? "" : ` · ${percent(productive)} productive`}
                </span>
              </div>
            );
          })}
        </div>
        <LanesCanvas
          lanes={lanes}
          marks={marks}
          windowMs={windowMs}
          clock={clock}
          label={`Activity by machine. Now ${wording}`}
        />
      </div>
      <DrawnKinds shown={new Set(lanes.flatMap((lane) => lane.shares.map(keyOf)))} />
      <Legend />
    </Card>
  );
}

interface Older {
  intervals: LaneInterval[];
  /** Machines with more intervals than one response has space for. Their oldest intervals are missing. */
  cut: string[];
}

// The most rows that a page of REST has.
const PER_REQUEST = 500;

/** Ledger intervals from before the page was opened, read once per window: one request for hundreds of machines. */
function useOlderIntervals(numMachines: number, windowMs: number): Older {
  const [openedAt] = useState(() => Date.now());
  const since = new Date(openedAt - windowMs).toISOString();
  const numRequests = windowMs > WINDOWS_MS["2 min"] ? Math.ceil(numMachines / PER_REQUEST) : 0;
  return useQueries({
    queries: Array.from({ length: numRequests }, (_, index) => ({
      queryKey: ["machine-ledgers", since, index],
      queryFn: () =>
        bodyOf(
          api.GET("/api/v1/machines/ledger", {
            params: { query: { since, limit: PER_REQUEST, offset: index * PER_REQUEST } },
          }),
        ),
      staleTime: Number.POSITIVE_INFINITY,
    })),
    combine: (results) => {
      const ledgers = results.flatMap(({ data }) => data?.results ?? []);
      return {
        intervals: ledgers.flatMap(({ name, intervals }) => spansOfLedger(name, intervals)),
        cut: ledgers.filter(({ truncated }) => truncated).map(({ name }) => name),
      };
    },
  });
}

/** Older intervals up to where each machine's live ones begin, then the live ones. */
function merged(older: readonly LaneInterval[], state: MachinesState): LaneInterval[] {
  const live = [...state.intervals.values()];
  const firstLive = new Map<string, number>();
  for (const { machine, start } of live) firstLive.set(machine, Math.min(firstLive.get(machine) ?? start, start));
  return [...older.filter((span) => span.start < (firstLive.get(span.machine) ?? Number.POSITIVE_INFINITY)), ...live];
}

function NoMachines() {
  return (
    <section className="card empty">
      <h2>No machines yet</h2>
      <p className="muted">A machine runs engines, trainers or agents, depending on its tags. To connect one:</p>
      <Snippet text="seamlessflow worker --name alpha --tags rollout,train" />
      <p className="muted">Waiting for its first heartbeat…</p>
    </section>
  );
}
