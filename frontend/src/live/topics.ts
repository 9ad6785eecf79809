// The topics of the first screens: which tables each keeps, and how frames change them.
import type { Frame } from "./frames";
import type { EventRow, GroupRow, IntervalRow, JobRow, MachineRow, MetricRow, PhaseRow, RewardRow } from "./rows";
import type { TopicDefinition } from "./TopicStore";
import { type Table, tableOf, tableWith } from "./tables";

const MAX_EVENTS = 500;
const MAX_GROUPS = 300;
const MAX_ENDED_PHASES = 200;
const MAX_INTERVALS = 20_000;

/** Jobs of each project the visitor reads, by topic: a snapshot replaces one project's. */
export type JobsState = ReadonlyMap<string, Table<JobRow>>;

export interface MachinesState {
  machines: Table<MachineRow>;
  intervals: Table<IntervalRow>;
}

export interface JobTopicState {
  job: JobRow | undefined;
  phases: Table<PhaseRow>;
  events: Table<EventRow>;
  groups: Table<GroupRow>;
  rewards: Table<RewardRow>;
  /** By name and step; only what came over the socket: older points come by REST. */
  metrics: Table<MetricRow>;
  tokensPerS: number | undefined;
  /** Counts snapshots: after a new one older points are read by REST again. */
  numSnapshots: number;
}

const byId = (row: { id: string | number }) => row.id;
const byName = (row: { name: string }) => row.name;

function jobsReduce(state: JobsState, frame: Frame): JobsState {
  const rows = frame.data.jobs as JobRow[] | undefined;
  const base: Table<JobRow> = (frame.kind === "delta" ? state.get(frame.topic) : undefined) ?? new Map();
  return new Map(state).set(frame.topic, tableWith(base, rows, byId));
}

function machinesReduce(state: MachinesState, frame: Frame): MachinesState {
  const { machines, intervals } = frame.data as { machines?: MachineRow[]; intervals?: IntervalRow[] };
  if (frame.kind === "snapshot") return { machines: tableOf(machines, byName), intervals: tableOf(intervals, byId) };
  const next = {
    machines: tableWith(state.machines, machines, byName),
    intervals: tableWith(state.intervals, intervals, byId, { most: MAX_INTERVALS, age: (row) => row.end }),
  };
  return next.machines === state.machines && next.intervals === state.intervals ? state : next;
}

interface JobData {
  jobs?: JobRow[];
  phases?: PhaseRow[];
  events?: EventRow[];
  groups?: GroupRow[];
  rewards?: RewardRow[];
  metrics?: MetricRow[];
  tokens_per_s?: number;
}

const EMPTY_JOB: JobTopicState = {
  job: undefined,
  phases: new Map(),
  events: new Map(),
  groups: new Map(),
  rewards: new Map(),
  metrics: new Map(),
  tokensPerS: undefined,
  numSnapshots: 0,
};

function jobReduce(state: JobTopicState, frame: Frame): JobTopicState {
  const data = frame.data as JobData;
  const isSnapshot = frame.kind === "snapshot";
  const base = isSnapshot ? { ...EMPTY_JOB, numSnapshots: state.numSnapshots + 1 } : state;
  const liveLast = (row: PhaseRow) => (row.ended_at === null ? Number.POSITIVE_INFINITY : row.leased_at);
  return {
    job: data.jobs?.at(-1) ?? base.job,
    phases: tableWith(base.phases, data.phases, byId, { most: MAX_ENDED_PHASES, age: liveLast }),
    events: tableWith(base.events, data.events, byId, { most: MAX_EVENTS, age: (row) => row.id }),
    groups: tableWith(base.groups, data.groups, byId, { most: MAX_GROUPS, age: (row) => row.index }),
    rewards: tableWith(base.rewards, data.rewards, (row) => row.batch),
    metrics: tableWith(base.metrics, data.metrics, (row) => `${row.name}@${row.step}`),
    tokensPerS: data.tokens_per_s ?? base.tokensPerS,
    numSnapshots: base.numSnapshots,
  };
}

export const JOBS = {
  name: "jobs",
  definition: {
    initial: new Map(),
    reduce: jobsReduce,
  } as TopicDefinition<JobsState>,
};

export const MACHINES = {
  name: "machines",
  definition: {
    initial: { machines: new Map(), intervals: new Map() },
    reduce: machinesReduce,
  } as TopicDefinition<MachinesState>,
};

export const JOB = {
  name: (jobId: string) => `job:${jobId}`,
  definition: { initial: EMPTY_JOB, reduce: jobReduce } as TopicDefinition<JobTopicState>,
};
