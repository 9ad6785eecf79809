// The kinds of a machine's time: their labels, and the order in which every bar, lane and legend shows them. Productive
// kinds come first, then overhead and idle causes, and unknown time last. Pure.

import { itemAt } from "../../values/columns";

export interface Kind {
  key: string;
  state: string;
  /** The cause of idle time or the fullness of a serving engine; empty for every other state. */
  cause: string;
  word: string;
  meaning: string;
  isProductive: boolean;
}

interface Meaning {
  word: string;
  meaning: string;
}

const PRODUCTIVE: Readonly<Record<string, Meaning>> = {
  serving: { word: "serving", meaning: "Its engine has requests in flight." },
  training: { word: "training", meaning: "Its trainer is working on a batch." },
  running_agents: { word: "running agents", meaning: "Agents on it are working on tasks." },
};
/** How full a serving engine was. No cause means that it was not measured. */
const SERVING: Readonly<Record<string, Meaning>> = {
  full: {
    word: "full",
    meaning: "Its engine has as many requests in flight as it can decode at once, or nearly as many.",
  },
  partly_filled: {
    word: "partly filled",
    meaning:
      "Its engine has spare capacity while the job has more work: there are too few agents, or they are busy with tools.",
  },
  draining_tail: {
    word: "draining tail",
    meaning: "Its engine has spare capacity and the job has nothing left to start: only the last sessions are running.",
  },
};
const OVERHEAD: Readonly<Record<string, Meaning>> = {
  starting: { word: "starting", meaning: "An engine, trainer or agent runner is starting on it." },
  switching: { word: "switching", meaning: "It is changing from one role to another." },
  syncing: { word: "syncing", meaning: "It is loading or publishing weights." },
  draining: { word: "draining", meaning: "It is handing over its running work and will then be idle." },
};
/** Idle causes: a label and an explanation each. */
const CAUSES: Readonly<Record<string, Meaning>> = {
  no_requests: {
    word: "no requests",
    meaning: "Its engine is up but receives no requests: agents are busy with tools, too few, or waiting for groups.",
  },
  no_batch: {
    word: "no full batch",
    meaning: "Its trainer is up but too few groups are finished: the job is waiting for rollout.",
  },
  no_groups: {
    word: "no groups to run",
    meaning:
      "Its agents are up but no task may start: as many groups are running as the staleness bound allows, or no tasks are left.",
  },
  awaiting_weights: {
    word: "awaiting weights",
    meaning: "Its engine does not have a policy version that it may serve yet.",
  },
  awaiting_gang: {
    word: "awaiting its gang",
    meaning: "It is reserved to train with other machines, which are still finishing their work.",
  },
  awaiting_orders: {
    word: "awaiting orders",
    meaning: "Its phase is over and the scheduler has not assigned the next one yet.",
  },
  no_job: {
    word: "no job",
    meaning: "No active job can use it: no job's roles, placement or machine count call for it.",
  },
  cordoned: { word: "cordoned", meaning: "Someone cordoned it; its last edit says why." },
};
const ELSEWHERE: Readonly<Record<string, Meaning>> = {
  other_jobs: { word: "other jobs", meaning: "It worked for other jobs." },
};
const SILENT: Readonly<Record<string, Meaning>> = {
  idle: { word: "idle", meaning: "It had nothing to do, for a cause this page does not recognise." },
  unknown: { word: "unknown", meaning: "No report covers this time." },
  down: { word: "down", meaning: "It sent no heartbeats." },
};

/** All kinds, in the order of every bar and legend. */
export const KINDS: readonly Kind[] = [
  ...kindsByCause("serving", SERVING, true),
  ...kindsOf(PRODUCTIVE, true),
  ...kindsOf(OVERHEAD, false),
  ...kindsByCause("idle", CAUSES, false),
  ...kindsOf({ ...ELSEWHERE, ...SILENT }, false),
];
const INDICES = new Map(KINDS.map(({ key }, index) => [key, index]));
const UNKNOWN = KINDS.findIndex(({ key }) => key === "unknown");

function kindsOf(states: Readonly<Record<string, Meaning>>, isProductive: boolean): Kind[] {
  return Object.entries(states).map(([state, { word, meaning }]) => ({
    key: state,
    state,
    cause: "",
    word,
    meaning,
    isProductive,
  }));
}

function kindsByCause(state: string, causes: Readonly<Record<string, Meaning>>, isProductive: boolean): Kind[] {
  return Object.entries(causes).map(([cause, { word, meaning }]) => ({
    key: `${state}-${cause}`,
    state,
    cause,
    word: `${state}: ${word}`,
    meaning,
    isProductive,
  }));
}

/** The position of a state in KINDS, with its cause if that is listed. A state that is not listed is unknown. */
export function kindIndexOf(state: string, cause: string): number {
  return INDICES.get(`${state}-${cause}`) ?? INDICES.get(state) ?? UNKNOWN;
}

export function kindOf(state: string, cause: string): Kind {
  return itemAt(KINDS, kindIndexOf(state, cause));
}

export function keyOf({ state, cause }: { state: string; cause: string }): string {
  return kindOf(state, cause).key;
}

/** The label of a state, including one that is not in KINDS. */
export function describeState(state: string, cause: string): string {
  const spaced = (name: string) => name.replaceAll("_", " ");
  const kind = kindOf(state, cause);
  if (kind.state === state && kind.cause === cause) return kind.word;
  const word = INDICES.has(state) ? kindOf(state, "").word : spaced(state);
  return cause ? `${word}: ${spaced(cause)}` : word;
}
