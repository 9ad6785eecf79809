// The jobs, machines and job topics: which tables each keeps, and how frames change them.
import { type Frame, OPEN_POOL, POOL_PREFIX } from "./frames";
import type {
  EditRow,
  EventRow,
  GroupRow,
  IntervalRow,
  JobData,
  JobRow,
  JobsData,
  MachineRow,
  MachinesData,
  MetricRow,
  PhaseRow,
  RewardRow,
} from "./rows";
import type { TopicDefinition } from "./TopicStore";
import { type Table, tableOf, tableWith, tableWithout } from "./tables";

const MAX_REWARDS = 100; // per job in the list
const MAX_EVENTS = 500;
const MAX_GROUPS = 300;
const MAX_ENDED_PHASES = 200;
const MAX_INTERVALS = 20_000;

/** Jobs of all projects the user can read, and the rewards published since the page subscribed. */
export interface JobsState {
  jobs: Table<JobRow>;
  /** IDs of jobs deleted since the page subscribed. */
  deleted: ReadonlySet<string>;
  rewards: ReadonlyMap<string, readonly RewardRow[]>;
}

export interface MachinesState {
  machines: Table<MachineRow>;
  intervals: Table<IntervalRow>;
  edits: Table<EditRow>;
}

export interface JobTopicState {
  job: JobRow | undefined;
  isDeleted: boolean;
  phases: Table<PhaseRow>;
  /** Whether `phases` lacks none of the job's phases. */
  arePhasesWhole: boolean;
  events: Table<EventRow>;
  groups: Table<GroupRow>;
  rewards: Table<RewardRow>;
  /** By name and step. Only points received over the socket; older ones are read over REST. */
  metrics: Table<MetricRow>;
  tokensPerS: number | undefined;
  /** Counts snapshots. After a new one, older points are read over REST again. */
  numSnapshots: number;
}

const byId = (row: { id: string | number }) => row.id;
const byName = (row: { name: string }) => row.name;

function jobsReduce(state: JobsState, frame: Frame): JobsState {
  const data: JobsData = frame.data;
  const deleted = data.deleted?.length ? new Set([...state.deleted, ...data.deleted]) : state.deleted;
  // A snapshot has only the newest jobs of one project, so it is merged into the known jobs of all projects.
  const known = tableWith(state.jobs, data.jobs, byId);
  const jobs = tableWithout(known, deleted);
  if (!data.rewards?.length) {
    return jobs === state.jobs && deleted === state.deleted ? state : { ...state, jobs, deleted };
  }
  const rewards = new Map(state.rewards);
  for (const row of data.rewards) rewards.set(row.job, [...(rewards.get(row.job) ?? []), row].slice(-MAX_REWARDS));
  return { jobs, deleted, rewards };
}

function machinesReduce(state: MachinesState, frame: Frame): MachinesState {
  const data: MachinesData = frame.data;
  // Intervals and edits from before a gap stay valid, and a snapshot goes back only two minutes.
  const next = {
    machines:
      frame.kind === "snapshot"
        ? poolReplaced(state.machines, frame, data.machines)
        : poolLeft(tableWith(state.machines, data.machines, byName), frame, data.left ?? []),
    intervals: tableWith(state.intervals, data.intervals, byId, { most: MAX_INTERVALS, age: (row) => row.end }),
    edits: tableWith(state.edits, data.edits, byId, { most: MAX_EVENTS, age: (row) => row.id }),
  };
  const isSame = next.machines === state.machines && next.intervals === state.intervals && next.edits === state.edits;
  return isSame ? state : next;
}

function poolOf(frame: Frame): string {
  return frame.topic.startsWith(POOL_PREFIX) ? frame.topic.slice(POOL_PREFIX.length) : OPEN_POOL;
}

/** Drops machines that left the pool of the frame, unless their new pool was already known. */
function poolLeft(known: Table<MachineRow>, frame: Frame, left: readonly string[]): Table<MachineRow> {
  const gone = new Set(left.filter((name) => known.get(name)?.pool === poolOf(frame)));
  return tableWithout(known, gone);
}

/** A snapshot has all machines of one pool. Machines of other pools are kept. */
function poolReplaced(known: Table<MachineRow>, frame: Frame, machines: MachineRow[] = []): Table<MachineRow> {
  const pool = poolOf(frame);
  const others = [...known.values()].filter((row) => row.pool !== pool);
  return tableOf([...others, ...machines], byName);
}

const EMPTY_JOB: JobTopicState = {
  job: undefined,
  isDeleted: false,
  phases: new Map(),
  arePhasesWhole: true,
  events: new Map(),
  groups: new Map(),
  rewards: new Map(),
  metrics: new Map(),
  tokensPerS: undefined,
  numSnapshots: 0,
};

function jobReduce(state: JobTopicState, frame: Frame): JobTopicState {
  const data: JobData = frame.data;
  const isSnapshot = frame.kind === "snapshot";
  const base = isSnapshot ? { ...EMPTY_JOB, numSnapshots: state.numSnapshots + 1 } : state;
  const areOlderKnown = isSnapshot ? !data.truncated?.includes("phases") : base.arePhasesWhole;
  const liveLast = (row: PhaseRow) => (row.ended_at === null ? Number.POSITIVE_INFINITY : row.leased_at);
  const phases = tableWith(base.phases, data.phases, byId, { most: MAX_ENDED_PHASES, age: liveLast });
  return {
    job: data.jobs?.at(-1) ?? base.job,
    isDeleted: state.isDeleted || Boolean(data.deleted?.length),
    phases,
    arePhasesWhole: areOlderKnown && phases.size < MAX_ENDED_PHASES,
    events: tableWith(base.events, data.events, byId, { most: MAX_EVENTS, age: (row) => row.id }),
    groups: tableWith(base.groups, data.groups, byId, { most: MAX_GROUPS, age: (row) => row.index }),
    rewards: tableWith(base.rewards, data.rewards, (row) => row.batch),
    metrics: tableWith(base.metrics, data.metrics, (row) => `${row.name}@${row.step}`),
    tokensPerS: data.tokens_per_s ?? base.tokensPerS,
    numSnapshots: base.numSnapshots,
  };
}

export const NO_JOBS: JobsState = { jobs: new Map(), deleted: new Set(), rewards: new Map() };
const jobs: TopicDefinition<JobsState> = { initial: NO_JOBS, reduce: jobsReduce };
const machines: TopicDefinition<MachinesState> = {
  initial: { machines: new Map(), intervals: new Map(), edits: new Map() },
  reduce: machinesReduce,
};
const job: TopicDefinition<JobTopicState> = { initial: EMPTY_JOB, reduce: jobReduce };

export const JOBS = { name: "jobs", definition: jobs };
export const MACHINES = { name: "machines", definition: machines };
export const JOB = { name: (jobId: string) => `job:${jobId}`, definition: job };
