import { expect, it } from "vitest";
import { failuresOf } from "./failures";

const points = (...value: number[]) => ({ step: value.map((_, at) => at), value });

it("says nothing without failures", () => {
  expect(failuresOf(new Map())).toBeNull();
  expect(failuresOf(new Map([["rollout/num_failed", points(0, 0)]]))).toBeNull();
});

it("adds up the updates by kind, the most frequent first, and compares the lengths", () => {
  const metrics = new Map([
    ["rollout/num_failed", points(3, 1)],
    ["rollout/num_failed_resumed", points(2, 1)],
    ["rollout/num_failed/grading", points(1)],
    ["rollout/num_failed/machine", points(2, 1)],
    ["rollout/num_failed/agent", points(0)],
    ["rollout/failed_length_mean", points(100, 200)],
    ["rollout/length_mean", points(90, 110)],
  ]);
  expect(failuresOf(metrics)).toEqual({
    num: 4,
    numResumed: 3,
    kinds: [
      { kind: "machine", words: "the machine was lost or drained", num: 3 },
      { kind: "grading", words: "the judge failed", num: 1 },
    ],
    failedLength: 150,
    outcomeLength: 100,
  });
});

it("reads buckets by their counts and means", () => {
  const bucket = { step: [9], value: [7], count: [4], mean: [2.5] };
  const failures = failuresOf(
    new Map([
      ["rollout/num_failed", bucket],
      ["rollout/failed_length_mean", bucket],
    ]),
  );
  expect(failures?.num).toBe(10);
  expect(failures?.failedLength).toBe(2.5);
  expect(failures?.outcomeLength).toBeNull();
});
