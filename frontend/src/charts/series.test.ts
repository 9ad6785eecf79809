import { expect, it } from "vitest";
import { aligned, described, lastKnown, overX, smoothed, withNews } from "./series";

it("puts metrics on the union of their steps and leaves gaps", () => {
  const data = aligned([
    { label: "a", points: { step: [1, 3], value: [10, 30] } },
    { label: "b", points: { step: [2], value: [0] } },
  ]);
  expect(data.x).toEqual([1, 2, 3]);
  expect(data.lines.map((line) => line.values)).toEqual([
    [10, null, 30],
    [null, 0, null],
  ]);
});

it("appends news and replaces what is known", () => {
  const points = withNews({ step: [1, 2], value: [5, 6] }, [
    { step: 3, value: 7 },
    { step: 2, value: 9 },
  ]);
  expect(points).toEqual({ step: [1, 2, 3], value: [5, 9, 7] });
});

it("moves a chart to another axis, without what has no place there", () => {
  const data = { x: [1, 2, 3], lines: [{ label: "a", values: [1, 2, 3], low: [0, 1, 2], high: [2, 3, 4] }] };
  expect(
    overX(
      data,
      new Map([
        [1, 100],
        [3, 300],
      ]),
    ),
  ).toEqual({
    x: [100, 300],
    lines: [{ label: "a", values: [1, 3], low: [0, 2], high: [2, 4] }],
  });
});

it("smooths without filling gaps", () => {
  expect(smoothed([1, null, 3, 5], 2)).toEqual([1, null, 3, 4]);
});

it("knows the newest value and says what a chart shows", () => {
  expect(lastKnown([1, 2, null])).toBe(2);
  expect(lastKnown([null])).toBeNull();
  const data = { x: [1, 2], lines: [{ label: "mean", values: [0, 1] }] };
  expect(described("Reward", data, String)).toBe("Reward: mean from 0 to 1, between 0 and 1");
  expect(described("Reward", { x: [], lines: [] }, String)).toBe("Reward: no values yet");
});
