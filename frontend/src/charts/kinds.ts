// The kinds of a machine's time: their words, and the one order in which every bar, lane and legend shows them. What the
// machine is for comes first; then what kept it from that, down to what is not known. Pure.

export interface Kind {
  key: string;
  state: string;
  /** Of idle time; empty for every other state. */
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
  training: { word: "training", meaning: "Its trainer works on a batch." },
  running_agents: { word: "running agents", meaning: "Agents work on tasks on it." },
};
/** How full a serving engine was. Without a cause nobody measured it. */
const SERVING: Readonly<Record<string, Meaning>> = {
  full: { word: "full", meaning: "Its engine has as many requests in flight as it decodes at once, or nearly." },
  partly_filled: {
    word: "partly filled",
    meaning: "Its engine has room while more of the job waits: agents are too few, or busy with their tools.",
  },
  draining_tail: {
    word: "draining tail",
    meaning: "Its engine has room and nothing of the job is left to begin: the last sessions are under way.",
  },
};
const OVERHEAD: Readonly<Record<string, Meaning>> = {
  starting: { word: "starting", meaning: "An engine, a trainer or a runner comes up on it." },
  switching: { word: "switching", meaning: "It changes from one role to another." },
  syncing: { word: "syncing", meaning: "It takes or publishes weights." },
  draining: { word: "draining", meaning: "It hands over what it runs, and then rests." },
};
/** Why a machine idles: in a few words, and what is behind it. */
const CAUSES: Readonly<Record<string, Meaning>> = {
  no_requests: {
    word: "no requests",
    meaning: "Its engine is up and no agent asks: they are busy with their tools, too few, or wait for groups.",
  },
  no_batch: {
    word: "no full batch",
    meaning: "Its trainer is up and too few groups are finished: rollout is what the job waits for.",
  },
  no_groups: {
    word: "no groups to run",
    meaning:
      "Its agents are up and no task may begin: as many groups are under way as the staleness bound allows, or none is left.",
  },
  awaiting_weights: { word: "awaiting weights", meaning: "Its engine has no policy version yet that it may serve." },
  awaiting_gang: {
    word: "awaiting the machines it trains with",
    meaning: "It is kept free to train with other machines, which finish what they do.",
  },
  awaiting_orders: {
    word: "awaiting orders",
    meaning: "Its phase is over and the scheduler has not said yet what comes next.",
  },
  no_job: {
    word: "no job",
    meaning: "No job that is active can use it: their roles, placement or number of machines do not ask for it.",
  },
  cordoned: { word: "cordoned", meaning: "Somebody took it out of work; its last edit says why." },
};
const ELSEWHERE: Readonly<Record<string, Meaning>> = {
  other_jobs: { word: "other jobs", meaning: "It worked for other jobs." },
};
const SILENT: Readonly<Record<string, Meaning>> = {
  idle: { word: "idle", meaning: "It had nothing to do, for a cause that this page does not know." },
  unknown: { word: "unknown", meaning: "No report covers this time." },
  down: { word: "down", meaning: "It sent no heartbeats." },
};

/** In the order of every bar and legend. */
export const KINDS: readonly Kind[] = [
  ...Object.keys(SERVING).map((cause) => kindMade("serving", cause, true)),
  ...Object.keys(PRODUCTIVE).map((state) => kindMade(state, "", true)),
  ...Object.keys(OVERHEAD).map((state) => kindMade(state, "", false)),
  ...Object.keys(CAUSES).map((cause) => kindMade("idle", cause, false)),
  ...Object.keys({ ...ELSEWHERE, ...SILENT }).map((state) => kindMade(state, "", false)),
];
const PLACES = new Map(KINDS.map(({ key }, place) => [key, place]));
const UNKNOWN = PLACES.get("unknown") as number;

function kindMade(state: string, cause: string, isProductive: boolean): Kind {
  const states: Readonly<Record<string, Meaning>> = { ...PRODUCTIVE, ...OVERHEAD, ...ELSEWHERE, ...SILENT };
  const { word, meaning } = states[state] as Meaning;
  if (!cause) return { key: state, state, cause, word, meaning, isProductive };
  const qualified = (state === "idle" ? CAUSES : SERVING)[cause] as Meaning;
  return {
    key: `${state}-${cause}`,
    state,
    cause,
    word: `${word}: ${qualified.word}`,
    meaning: qualified.meaning,
    isProductive,
  };
}

/** Where a state stands in KINDS, with its cause where that has a place. What this page has never heard of is unknown. */
export function placeOf(state: string, cause: string): number {
  return PLACES.get(`${state}-${cause}`) ?? PLACES.get(state) ?? UNKNOWN;
}

export function kindOf(state: string, cause: string): Kind {
  return KINDS[placeOf(state, cause)] as Kind;
}

export function keyOf({ state, cause }: { state: string; cause: string }): string {
  return kindOf(state, cause).key;
}

/** In words, also what has no place. */
export function describeState(state: string, cause: string): string {
  const spaced = (name: string) => name.replaceAll("_", " ");
  const kind = kindOf(state, cause);
  if (kind.state === state && kind.cause === cause) return kind.word;
  const word = PLACES.has(state) ? kindOf(state, "").word : spaced(state);
  return cause ? `${word}: ${spaced(cause)}` : word;
}
