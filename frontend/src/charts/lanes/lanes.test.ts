import { expect, it } from "vitest";
import type { MachineRow } from "../../live/rows";
import { KINDS, kindIndexOf } from "./kinds";
import {
  columnsOf,
  columnsOver,
  describeState,
  laneOfJob,
  lanesOf,
  productiveShare,
  sharesOf,
  spanAt,
  timeTicks,
} from "./lanes";

const machine = (changes: Partial<MachineRow> = {}): MachineRow =>
  ({ name: "alpha", is_healthy: true, open_state: "", open_cause: "", open_since: null, ...changes }) as MachineRow;
const interval = (state: string, start: number, end: number, cause = "") => ({
  machine: "alpha",
  state,
  cause,
  start,
  end,
});

it("joins adjacent spans of the same kind", () => {
  const intervals = [interval("serving", 0, 100), interval("serving", 120, 200), interval("training", 200, 300)];
  const [lane] = lanesOf([machine()], intervals, 0, 300);
  expect(lane?.spans).toEqual([
    { state: "serving", cause: "", start: 0, end: 200 },
    { state: "training", cause: "", start: 200, end: 300 },
  ]);
});

it("extends the current activity up to now, and clips spans that began before the window", () => {
  const open = machine({ open_state: "idle", open_cause: "no_batch", open_since: 500 });
  const [lane] = lanesOf([open], [interval("serving", 0, 500)], 200, 1000);
  expect(lane?.spans.map(({ state, start, end }) => [state, start, end])).toEqual([
    ["serving", 200, 500],
    ["idle", 500, 1000],
  ]);
  expect(lane?.now).toBe("idle: no full batch");
});

it("shows no current activity for a machine without heartbeats", () => {
  const silent = machine({ is_healthy: false, open_state: "serving", open_since: 0 });
  const [lane] = lanesOf([silent], [interval("serving", 0, 300)], 0, 1000);
  expect(lane?.spans.at(-1)?.end).toBe(300);
  expect(lane?.now).toBe("no heartbeats");
});

it("leaves a gap where nothing is known", () => {
  const [lane] = lanesOf([machine()], [interval("serving", 0, 100), interval("serving", 400, 500)], 0, 500);
  expect(lane?.spans).toHaveLength(2);
  expect(spanAt(lane?.spans ?? [], 200)).toBeNull();
  expect(spanAt(lane?.spans ?? [], 450)?.start).toBe(400);
});

it("divides the known time into shares, productive kinds first and idle time by cause", () => {
  const shares = sharesOf([
    { state: "idle", cause: "no_batch", start: 0, end: 100 },
    { state: "serving", cause: "", start: 100, end: 350 },
    { state: "idle", cause: "no_job", start: 350, end: 400 },
  ]);
  expect(shares.map(({ state, cause, share }) => [describeState(state, cause), share])).toEqual([
    ["serving", 0.625],
    ["idle: no full batch", 0.25],
    ["idle: no job", 0.125],
  ]);
  expect(productiveShare(shares)).toBe(0.625);
  expect(productiveShare([])).toBeNull();
});

it("places ticks at round times", () => {
  expect(timeTicks(1_000, 61_000, 4)).toEqual([15_000, 30_000, 45_000, 60_000]);
});

it("divides a column among all its spans, however short", () => {
  const spans = Array.from({ length: 100 }, (_, i) => [
    { state: "serving", cause: "", start: i * 10, end: i * 10 + 9 },
    { state: "idle", cause: "no_requests", start: i * 10 + 9, end: i * 10 + 10 },
  ]).flat();
  const shares = columnsOf(spans, { begin: 0, columnMs: 100, numColumns: 11 });
  const at = (column: number, state: string, cause = "") => shares[column * KINDS.length + kindIndexOf(state, cause)];
  for (let column = 0; column < 10; column++) {
    expect(at(column, "serving")).toBeCloseTo(0.9);
    expect(at(column, "idle", "no_requests")).toBeCloseTo(0.1);
  }
  expect(at(10, "serving")).toBe(0);
});

it("cuts spans at column boundaries, and leaves unknown time empty", () => {
  const spans = [
    { state: "training", cause: "", start: -50, end: 130 },
    { state: "syncing", cause: "", start: 175, end: 1_000 },
  ];
  const shares = columnsOf(spans, { begin: 0, columnMs: 100, numColumns: 3 });
  const column = (i: number) => shares.slice(i * KINDS.length, (i + 1) * KINDS.length);
  const sum = (values: Float32Array) => values.reduce((total, value) => total + value, 0);
  expect([0, 1, 2].map((i) => column(i)[kindIndexOf("training", "")])).toEqual([1, expect.closeTo(0.3), 0]);
  expect([0, 1, 2].map((i) => column(i)[kindIndexOf("syncing", "")])).toEqual([0, 0.25, 1]);
  expect(sum(column(1))).toBeCloseTo(0.55);
});

it("preserves the total time of the spans, whatever the columns", () => {
  const spans = [7, 13, 31, 2, 90, 55].map((ms, i, all) => {
    const start = all.slice(0, i).reduce((sum, one) => sum + one, 0);
    return { state: i % 2 ? "serving" : "training", cause: "", start, end: start + ms };
  });
  for (const columnMs of [1, 3, 10, 64, 500]) {
    const shares = columnsOf(spans, { begin: 0, columnMs, numColumns: Math.ceil(198 / columnMs) });
    expect(shares.reduce((sum, share) => sum + share, 0) * columnMs).toBeCloseTo(198, 3);
  }
});

it("aligns columns to a grid that does not move with the window", () => {
  const first = columnsOver(1_030, 2_030, 10);
  const later = columnsOver(1_090, 2_090, 10);
  expect([first.begin, first.columnMs]).toEqual([1_000, 100]);
  expect(later.begin).toBe(first.begin);
  expect(first.begin + first.numColumns * first.columnMs).toBeGreaterThanOrEqual(2_030);
});

it("shows a machine's work outside a job's phases as work for other jobs", () => {
  const intervals = [interval("serving", 0, 300), interval("idle", 300, 400, "no_job"), interval("training", 400, 500)];
  const [lane] = lanesOf([machine({ open_state: "serving", open_since: 500 })], intervals, 0, 600);
  const leases = [
    { machine: "alpha", leased_at: 100, ended_at: 200 },
    { machine: "alpha", leased_at: 420, ended_at: null },
    { machine: "beta", leased_at: 0, ended_at: null },
  ];
  if (!lane) throw new Error("no lane");
  const seen = laneOfJob(lane, leases, 600);
  expect(seen.spans.map(({ state, start, end }) => [state, start, end])).toEqual([
    ["other_jobs", 0, 100],
    ["serving", 100, 200],
    ["other_jobs", 200, 300],
    ["idle", 300, 400],
    ["other_jobs", 400, 420],
    ["training", 420, 500],
    ["serving", 500, 600],
  ]);
  expect(productiveShare(seen.shares)).toBeCloseTo(280 / 600);
  expect(laneOfJob(lane, leases, 600, 50).spans[0]).toMatchObject({ state: "serving", start: 0, end: 50 });
  expect(laneOfJob(lane, [], 600).now).toBe("other jobs");
});
