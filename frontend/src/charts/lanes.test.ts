import { expect, it } from "vitest";
import type { MachineRow } from "../live/rows";
import { describeState, idleShare, lanesOf, sharesOf, spanAt, timeTicks } from "./lanes";

const machine = (changes: Partial<MachineRow> = {}): MachineRow =>
  ({ name: "alpha", is_healthy: true, open_state: "", open_cause: "", open_since: null, ...changes }) as MachineRow;
const interval = (state: string, start: number, end: number, cause = "") => ({
  machine: "alpha",
  state,
  cause,
  start,
  end,
});

it("joins what touches and says the same", () => {
  const intervals = [interval("serving", 0, 100), interval("serving", 120, 200), interval("training", 200, 300)];
  const [lane] = lanesOf([machine()], intervals, 0, 300);
  expect(lane?.spans).toEqual([
    { state: "serving", cause: "", start: 0, end: 200 },
    { state: "training", cause: "", start: 200, end: 300 },
  ]);
});

it("lets what a machine does reach up to now, and clips what began before the window", () => {
  const open = machine({ open_state: "idle", open_cause: "no_batch", open_since: 500 });
  const [lane] = lanesOf([open], [interval("serving", 0, 500)], 200, 1000);
  expect(lane?.spans.map(({ state, start, end }) => [state, start, end])).toEqual([
    ["serving", 200, 500],
    ["idle", 500, 1000],
  ]);
  expect(lane?.now).toBe("idle: no full batch");
});

it("says nothing about now of a machine that is silent", () => {
  const silent = machine({ is_healthy: false, open_state: "serving", open_since: 0 });
  const [lane] = lanesOf([silent], [interval("serving", 0, 300)], 0, 1000);
  expect(lane?.spans.at(-1)?.end).toBe(300);
  expect(lane?.now).toBe("no heartbeats");
});

it("leaves a hole where nothing is known", () => {
  const [lane] = lanesOf([machine()], [interval("serving", 0, 100), interval("serving", 400, 500)], 0, 500);
  expect(lane?.spans).toHaveLength(2);
  expect(spanAt(lane?.spans ?? [], 200)).toBeNull();
  expect(spanAt(lane?.spans ?? [], 450)?.start).toBe(400);
});

it("shares out the time that is known, idle once per cause", () => {
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
  expect(idleShare(shares)).toBe(0.375);
  expect(idleShare([])).toBeNull();
});

it("marks round moments", () => {
  expect(timeTicks(1_000, 61_000, 4)).toEqual([15_000, 30_000, 45_000, 60_000]);
});
