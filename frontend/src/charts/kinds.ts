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
const OVERHEAD: Readonly<Record<string, Meaning>> = {
  starting: { word: "starting", meaning: "An engine, a trainer or a runner comes up on it." },
  switching: { word: "switching", meaning: "It changes from one role to another." },
  syncing: { word: "syncing", meaning: "It takes or publishes weights." },
  draining: { word: "draining", meaning: "It hands over what it runs, and then rests." },
};
/** Why a machine idles: in a few words, and what is behind it. */
export const CAUSES: Readonly<Record<string, Meaning>> = {
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
const SILENT: Readonly<Record<string, Meaning>> = {
  idle: { word: "idle", meaning: "It had nothing to do, for a cause that this page does not know." },
  unknown: { word: "unknown", meaning: "No report covers this time." },
  down: { word: "down", meaning: "It sent no heartbeats." },
};

/** In the order of every bar and legend. */
export const KINDS: readonly Kind[] = [
  ...Object.entries(PRODUCTIVE).map(([state, said]) => kindOfState(state, said, true)),
  ...Object.entries(OVERHEAD).map(([state, said]) => kindOfState(state, said, false)),
  ...Object.entries(CAUSES).map(([cause, { word, meaning }]) => ({
    key: `idle-${cause}`,
    state: "idle",
    cause,
    word: `idle: ${word}`,
    meaning,
    isProductive: false,
  })),
  ...Object.entries(SILENT).map(([state, said]) => kindOfState(state, said, false)),
];
const PLACES = new Map(KINDS.map(({ key }, place) => [key, place]));
const UNKNOWN = PLACES.get("unknown") as number;
const IDLE = PLACES.get("idle") as number;

function kindOfState(state: string, { word, meaning }: Meaning, isProductive: boolean): Kind {
  return { key: state, state, cause: "", word, meaning, isProductive };
}

/** Where a state stands in KINDS; idle time by its cause. What this page has never heard of is unknown. */
export function placeOf(state: string, cause: string): number {
  if (state === "idle") return PLACES.get(`idle-${cause}`) ?? IDLE;
  return PLACES.get(state) ?? UNKNOWN;
}

export function kindOf(state: string, cause: string): Kind {
  return KINDS[placeOf(state, cause)] as Kind;
}

export function keyOf({ state, cause }: { state: string; cause: string }): string {
  return kindOf(state, cause).key;
}

export function describeState(state: string, cause: string): string {
  const word = PLACES.has(state) ? kindOf(state, "").word : state.replaceAll("_", " ");
  return cause ? `${word}: ${CAUSES[cause]?.word ?? cause.replaceAll("_", " ")}` : word;
}
