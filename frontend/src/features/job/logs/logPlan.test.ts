import { expect, it } from "vitest";
import type { PhaseRow } from "../../../live/rows";
import { following, lanesOf, neighbours } from "./logPlan";

const phase = (id: string, role: string, machine: string, leased_at: number) =>
  ({ id, role, machine, leased_at, fence: leased_at }) as PhaseRow;

const PHASES = [
  phase("r2", "rollout", "alpha", 3),
  phase("t1", "train", "alpha", 2),
  phase("r1", "rollout", "alpha", 1),
  phase("t2", "train", "alpha", 4),
  phase("b1", "rollout", "beta", 1),
  phase("a1", "agent", "gamma", 1),
];

it("chains the phases of a role on a machine, trainers first", () => {
  expect(lanesOf(PHASES).map((lane) => [lane.key, lane.phases.map(({ id }) => id)])).toEqual([
    ["train:alpha", ["t1", "t2"]],
    ["rollout:alpha", ["r1", "r2"]],
    ["rollout:beta", ["b1"]],
    ["agent:gamma", ["a1"]],
  ]);
});

it("finds the phases before and after a phase", () => {
  const lanes = lanesOf(PHASES);
  expect(neighbours(lanes, "t2")).toMatchObject({ before: { id: "t1" }, lane: { key: "train:alpha" } });
  expect(neighbours(lanes, "t2")?.after).toBeUndefined();
  expect(neighbours(lanes, "r1")?.after?.id).toBe("r2");
  expect(neighbours(lanes, "unknown")).toBeUndefined();
});

it("moves on to the next phase once the log of the current one is complete", () => {
  const [first, second] = [phase("t1", "train", "alpha", 1_000), phase("t2", "train", "alpha", 20_000)];
  const ended = { ...first, ended_at: 19_000 };
  expect(following([{ ...first, ended_at: null }, second], first, 60_000)).toBeUndefined();
  expect(following([ended, second], first, 20_000)).toBeUndefined();
  expect(following([ended, second], first, 30_000)?.id).toBe("t2");
  expect(following([ended], first, 30_000)).toBeUndefined();
  expect(following([second], ended, 30_000)?.id).toBe("t2"); // it is no longer in the list, which has only the newest
});
