// What lanes draw: the ledger of machines over a window of time. Pure; times in milliseconds of the server's clock.
import type { IntervalRow, MachineRow } from "../live/rows";

export const STATES = [
  "serving",
  "training",
  "running_agents",
  "starting",
  "switching",
  "syncing",
  "draining",
  "idle",
  "unknown",
  "down",
] as const;
export type LedgerState = (typeof STATES)[number];

const STATE_WORDS: Record<string, string> = { running_agents: "running agents" };
/** Why a machine idles: in a few words, and what is behind it. */
export const CAUSES: Readonly<Record<string, { word: string; meaning: string }>> = {
  no_job: {
    word: "no job",
    meaning: "No job that is active can use it: their roles, placement or number of machines do not ask for it.",
  },
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
  awaiting_orders: {
    word: "awaiting orders",
    meaning: "Its phase is over and the scheduler has not said yet what comes next.",
  },
  awaiting_weights: { word: "awaiting weights", meaning: "Its engine has no policy version yet that it may serve." },
  awaiting_gang: {
    word: "awaiting the machines it trains with",
    meaning: "It is kept free to train with other machines, which finish what they do.",
  },
  cordoned: { word: "cordoned", meaning: "Somebody took it out of work; its last edit says why." },
};
// Machines report in pieces: what touches within this and says the same is one bar.
const TOUCHING_MS = 50;

export interface Span {
  state: string;
  cause: string;
  start: number;
  end: number;
}

export interface Share {
  state: string;
  cause: string;
  share: number;
  ms: number;
}

export interface Lane {
  machine: MachineRow;
  spans: Span[];
  shares: Share[];
  now: string;
}

export function describeState(state: string, cause: string): string {
  const word = STATE_WORDS[state] ?? state;
  return cause ? `${word}: ${CAUSES[cause]?.word ?? cause.replaceAll("_", " ")}` : word;
}

/** One lane per machine over [begin, now]; what a machine does at this moment reaches up to now. */
export function lanesOf(
  machines: readonly MachineRow[],
  intervals: Iterable<Span & { machine: string }>,
  begin: number,
  now: number,
): Lane[] {
  const byMachine = new Map<string, Span[]>(machines.map((machine) => [machine.name, []]));
  for (const interval of intervals) {
    if (interval.end > begin) byMachine.get(interval.machine)?.push(interval);
  }
  return machines.map((machine) => {
    const spans = joined((byMachine.get(machine.name) ?? []).sort((a, b) => a.start - b.start));
    const open = openSpan(machine, Math.max(begin, spans.at(-1)?.end ?? begin), now);
    const all = (open ? joined([...spans, open]) : spans).map((span) => ({
      ...span,
      start: Math.max(span.start, begin),
    }));
    const said = machine.is_healthy
      ? describeState(machine.open_state || "unknown", machine.open_cause)
      : "no heartbeats";
    return { machine, spans: all, shares: sharesOf(all), now: said };
  });
}

/** The open interval: it ends now. A machine that is silent says nothing about now. */
function openSpan(machine: MachineRow, from: number, now: number): Span | null {
  if (!machine.open_state || !machine.is_healthy) return null;
  const start = Math.max(machine.open_since ?? now, from);
  return start < now ? { state: machine.open_state, cause: machine.open_cause, start, end: now } : null;
}

export function joined(spans: readonly Span[]): Span[] {
  const result: Span[] = [];
  for (const { state, cause, start, end } of spans) {
    const previous = result.at(-1);
    const isSame = previous?.state === state && previous.cause === cause;
    if (previous && isSame && start - previous.end < TOUCHING_MS) previous.end = Math.max(previous.end, end);
    else if (end > start) result.push({ state, cause, start, end });
  }
  return result;
}

/** Shares of the time that is known, largest first; idle time once per cause. */
export function sharesOf(spans: readonly Span[]): Share[] {
  const total = spans.reduce((sum, span) => sum + span.end - span.start, 0);
  const byKey = new Map<string, Share>();
  for (const { state, cause, start, end } of spans) {
    const key = `${state}:${cause}`;
    const known = byKey.get(key) ?? { state, cause, share: 0, ms: 0 };
    byKey.set(key, { ...known, ms: known.ms + end - start });
  }
  return [...byKey.values()]
    .map((entry) => ({ ...entry, share: total ? entry.ms / total : 0 }))
    .sort((a, b) => b.ms - a.ms);
}

export function idleShare(shares: readonly Share[]): number | null {
  if (shares.length === 0) return null;
  return shares.filter(({ state }) => state === "idle").reduce((sum, { share }) => sum + share, 0);
}

/** The span at a moment, by bisection. */
export function spanAt(spans: readonly Span[], at: number): Span | null {
  let low = 0;
  let high = spans.length - 1;
  while (low <= high) {
    const middle = (low + high) >> 1;
    const span = spans[middle] as Span;
    if (at < span.start) high = middle - 1;
    else if (at >= span.end) low = middle + 1;
    else return span;
  }
  return null;
}

/** Moments for the axis: round ones, at most `most`. */
export function timeTicks(begin: number, end: number, most: number): number[] {
  const step = STEPS_MS.find((one) => (end - begin) / one <= most) ?? (STEPS_MS.at(-1) as number);
  const ticks: number[] = [];
  for (let at = Math.ceil(begin / step) * step; at <= end; at += step) ticks.push(at);
  return ticks;
}

const STEPS_MS = [5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 21_600, 86_400].map((s) => s * 1000);

/** The ledger over REST, as rows of the live topic. */
export function spansOfLedger(
  machine: string,
  intervals: readonly { state: string; cause: string; started_at: string; ended_at: string }[],
): (Span & { machine: string })[] {
  return intervals.map(({ state, cause, started_at, ended_at }) => ({
    machine,
    state,
    cause,
    start: Date.parse(started_at),
    end: Date.parse(ended_at),
  }));
}

export type LaneInterval = Pick<IntervalRow, "machine" | "state" | "cause" | "start" | "end">;
