import { expect, it } from "vitest";
import { estimatedKs, hasHeldOutTasks } from "./evaluation";

it("detects whether a job has held-out tasks", () => {
  expect(hasHeldOutTasks({ evaluation: { tasks: "artifact://x" } })).toBe(true);
  expect(hasHeldOutTasks({ evaluation: { tasks: null } })).toBe(false);
  expect(hasHeldOutTasks({})).toBe(false);
  expect(hasHeldOutTasks(undefined)).toBe(false);
});

it("collects every k of the evaluations in ascending order", () => {
  expect(estimatedKs([{ pass_at_k: {} }, { pass_at_k: { "16": 0.5, "1": 0.1 } }, { pass_at_k: { "4": 1 } }])).toEqual([
    1, 4, 16,
  ]);
});
