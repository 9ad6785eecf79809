// The data behind lanes: the ledger of machines over a time window. Pure; times in milliseconds of the server's clock.
import type { IntervalRow, MachineRow, PhaseRow } from "../../live/rows";
import { itemAt } from "../../values/columns";
import { describeState, KINDS, kindIndexOf, kindOf } from "./kinds";

export { describeState } from "./kinds";

// Machines report their time in spans. Equal spans closer than this form one bar.
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

/** A window of time, cut into columns of one pixel. */
export interface Columns {
  begin: number;
  columnMs: number;
  numColumns: number;
}

export interface Lane {
  machine: MachineRow;
  spans: Span[];
  shares: Share[];
  now: string;
}

/** One lane per machine over [begin, now]. A machine's current activity extends to now. */
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
    const wording = machine.is_healthy
      ? describeState(machine.open_state || "unknown", machine.open_cause)
      : "no heartbeats";
    return { machine, spans: all, shares: sharesOf(all), now: wording };
  });
}

/** The open interval, which ends now. A machine without heartbeats has none. */
function openSpan(machine: MachineRow, from: number, now: number): Span | null {
  if (!machine.open_state || !machine.is_healthy) return null;
  const start = Math.max(machine.open_since ?? now, from);
  return start < now ? { state: machine.open_state, cause: machine.open_cause, start, end: now } : null;
}

const IDLE_OR_SILENT = new Set(["idle", "unknown", "down"]);

type Lease = Pick<PhaseRow, "machine" | "leased_at" | "ended_at">;

/**
 * The lane as one job sees it: work outside its own phases is work for other jobs. `knownFrom`: before it, phases of the
 * job may be missing, so work is shown as it is.
 */
export function laneOfJob(
  lane: Lane,
  phases: readonly Lease[],
  now: number,
  knownFrom = Number.NEGATIVE_INFINITY,
): Lane {
  const machine = lane.machine.name;
  const unknown = { machine, leased_at: Number.NEGATIVE_INFINITY, ended_at: knownFrom };
  const leases = [unknown, ...phases.filter((phase) => phase.machine === machine)];
  const spans = joined(
    lane.spans.flatMap((span) => (IDLE_OR_SILENT.has(span.state) ? [span] : cut(span, leases, now))),
  );
  const last = spans.at(-1);
  const isOthers = last?.state === OTHER_JOBS && last.end >= now;
  return { ...lane, spans, shares: sharesOf(spans), now: isOthers ? describeState(OTHER_JOBS, "") : lane.now };
}

const OTHER_JOBS = "other_jobs";

/** Cuts a span at the edges of leases. */
function cut(span: Span, leases: readonly Lease[], now: number): Span[] {
  const within = leases
    .map((lease) => ({ start: Math.max(lease.leased_at, span.start), end: Math.min(lease.ended_at ?? now, span.end) }))
    .filter(({ start, end }) => start < end)
    .sort((a, b) => a.start - b.start);
  const pieces: Span[] = [];
  let begin = span.start;
  for (const { start, end } of within) {
    if (start > begin) pieces.push({ state: OTHER_JOBS, cause: "", start: begin, end: start });
    if (end > begin) pieces.push({ ...span, start: Math.max(start, begin), end });
    begin = Math.max(begin, end);
  }
  return begin < span.end ? [...pieces, { state: OTHER_JOBS, cause: "", start: begin, end: span.end }] : pieces;
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

/** Shares of the known time in the order of KINDS, with idle time split by cause. */
export function sharesOf(spans: readonly Span[]): Share[] {
  const total = spans.reduce((sum, span) => sum + span.end - span.start, 0);
  const byKey = new Map<string, Share>();
  for (const { state, cause, start, end } of spans) {
    const key = `${state}:${cause}`;
    const known = byKey.get(key) ?? { state, cause, share: 0, ms: 0 };
    byKey.set(key, { ...known, ms: known.ms + end - start });
  }
  return inOrder([...byKey.values()].map((entry) => ({ ...entry, share: total ? entry.ms / total : 0 })));
}

export function inOrder<One extends { state: string; cause: string }>(shares: readonly One[]): One[] {
  return [...shares].sort((a, b) => kindIndexOf(a.state, a.cause) - kindIndexOf(b.state, b.cause));
}

/** The fraction of the known time spent on serving, training or running agents; null if nothing is known. */
export function productiveShare(shares: readonly Share[]): number | null {
  if (shares.length === 0) return null;
  return shares
    .filter(({ state, cause }) => kindOf(state, cause).isProductive)
    .reduce((sum, { share }) => sum + share, 0);
}

/**
 * The fraction of each kind in each column: `shares[column * KINDS.length + index]`, between 0 and 1. If the shares of a
 * column add up to less than 1, the rest is unknown. A column can have many short spans, and each counts with its
 * length.
 */
export function columnsOf(
  spans: readonly Span[],
  { begin, columnMs, numColumns }: Columns,
  shares = new Float32Array(numColumns * KINDS.length),
): Float32Array {
  shares.fill(0);
  for (const { state, cause, start, end } of spans) {
    const index = kindIndexOf(state, cause);
    const [from, to] = [(start - begin) / columnMs, (end - begin) / columnMs];
    const last = Math.min(Math.ceil(to), numColumns);
    for (let column = Math.max(Math.floor(from), 0); column < last; column++) {
      const covered = Math.min(to, column + 1) - Math.max(from, column);
      if (covered > 0) shares[column * KINDS.length + index] = (shares[column * KINDS.length + index] ?? 0) + covered;
    }
  }
  return shares;
}

/** The columns of a window. They lie on a fixed grid so that they do not shimmer as time passes. */
export function columnsOver(begin: number, end: number, width: number): Columns {
  const columnMs = (end - begin) / Math.max(width, 1);
  const first = Math.floor(begin / columnMs) * columnMs;
  return { begin: first, columnMs, numColumns: Math.ceil((end - first) / columnMs) };
}

/** Finds the span at a moment by bisection. */
export function spanAt(spans: readonly Span[], at: number): Span | null {
  let low = 0;
  let high = spans.length - 1;
  while (low <= high) {
    const middle = (low + high) >> 1;
    const span = itemAt(spans, middle);
    if (at < span.start) high = middle - 1;
    else if (at >= span.end) low = middle + 1;
    else return span;
  }
  return null;
}

/** At most `most` round moments for the axis. */
export function timeTicks(begin: number, end: number, most: number): number[] {
  const step = STEPS_MS.find((one) => (end - begin) / one <= most) ?? Math.max(...STEPS_MS);
  const ticks: number[] = [];
  for (let at = Math.ceil(begin / step) * step; at <= end; at += step) ticks.push(at);
  return ticks;
}

const STEPS_MS = [5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 21_600, 86_400].map((s) => s * 1000);

/** Converts ledger intervals read over REST into rows of the live topic. */
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
