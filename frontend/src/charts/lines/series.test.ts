import { expect, it } from "vitest";
import { numberAt } from "../../values/columns";
import { loneIn } from "./plotOptions";
import { aligned, type Column, described, lastKnown, overX, saidOf, withNews } from "./series";

/** The pairs of x values that a line joins: across `undefined`, never across null. */
function drawn(x: readonly number[], values: Column): [number, number][] {
  const pairs: [number, number][] = [];
  let before: number | null = null;
  values.forEach((value, i) => {
    if (value === undefined) return;
    if (value !== null && before !== null) pairs.push([before, numberAt(x, i)]);
    before = value === null ? null : numberAt(x, i);
  });
  return pairs;
}

it("puts metrics on the union of their steps", () => {
  const data = aligned([
    { label: "a", points: { step: [1, 2, 3], value: [10, 20, 30] } },
    { label: "b", points: { step: [2], value: [0] } },
  ]);
  expect(data.x).toEqual([1, 2, 3]);
  expect(data.lines.map((line) => line.values)).toEqual([
    [10, 20, 30],
    [null, 0, null],
  ]);
});

it("draws no line across updates for which a metric has no point", () => {
  const step = [1, 2, 3, 7, 8];
  const { x, lines } = aligned([{ label: "a", points: { step, value: step } }]);
  expect(drawn(x, lines[0]?.values ?? [])).toEqual([
    [1, 2],
    [2, 3],
    [7, 8],
  ]);
});

it("joins the points of an infrequent metric, and leaves a gap where points are missing", () => {
  const sparse = { step: [0, 5, 10, 30, 35], value: [0, 1, 2, 3, 4] };
  const step = Array.from({ length: 36 }, (_, i) => i);
  const { x, lines } = aligned([
    { label: "each", points: { step, value: step } },
    { label: "sparse", points: sparse },
  ]);
  expect(drawn(x, lines[1]?.values ?? [])).toEqual([
    [0, 5],
    [5, 10],
    [30, 35],
  ]);
  expect(drawn(x, lines[0]?.values ?? [])).toHaveLength(35);
});

it("finds isolated points", () => {
  expect(loneIn([1, null, 2, undefined, 3, null, 4])).toEqual([0, 6]);
  expect(loneIn([null, null])).toEqual([]);
});

const BUCKETS = {
  first_step: [0, 4, 12],
  step: [3, 7, 13],
  value: [3, 7, 13],
  count: [4, 4, 2],
  min: [0, 4, 12],
  max: [3, 7, 13],
  mean: [1.5, 5.5, 12.5],
};

it("draws a bucket as its mean over a band from smallest to largest, and a missing one as a gap", () => {
  const { x, lines } = aligned([{ label: "a", points: BUCKETS }], 4);
  expect(x).toEqual([3, 7, 11, 13]);
  const [line] = lines;
  expect([line?.values, line?.low, line?.high]).toEqual([
    [1.5, 5.5, null, 12.5],
    [0, 4, null, 12],
    [3, 7, null, 13],
  ]);
  if (!line) throw new Error("no line");
  expect(saidOf(line, x, null)).toBe(13);
  expect(saidOf(line, x, [0, 8])).toBe(7);
});

it("adds new points to the buckets they fall into", () => {
  const { lines } = aligned([{ label: "a", points: withNews(BUCKETS, [{ step: 14, value: 40 }]) }], 4);
  expect(lines[0]?.values.at(-1)).toBeCloseTo((12 + 13 + 40) / 3);
  expect(lines[0]?.high?.at(-1)).toBe(40);
  const known = withNews(BUCKETS, [{ step: 6, value: 99 }]);
  expect(known).toEqual(BUCKETS);
});

it("appends new points and replaces known ones", () => {
  const points = withNews({ step: [1, 2], value: [5, 6] }, [
    { step: 3, value: 7 },
    { step: 2, value: 9 },
  ]);
  expect(points).toEqual({ step: [1, 2, 3], value: [5, 9, 7] });
});

it("moves a chart to another axis, with gaps for points that have no value there", () => {
  const data = { x: [1, 2, 3], lines: [{ label: "a", values: [1, 2, 3], low: [0, 1, 2], high: [2, 3, 4] }] };
  const positions = new Map([
    [1, 100],
    [3, 300],
  ]);
  expect(overX(data, positions)).toEqual({
    x: [100, 200, 300],
    lines: [{ label: "a", values: [1, null, 3], low: [0, null, 2], high: [2, null, 4] }],
  });
  const gap = aligned([{ label: "a", points: { step: [1, 3, 4, 5], value: [1, 3, 4, 5] } }]);
  const moved = overX(gap, new Map([1, 3, 4, 5].map((step) => [step, step * 10])));
  expect(drawn(moved.x, moved.lines[0]?.values ?? [])).toEqual([
    [30, 40],
    [40, 50],
  ]);
});

it("finds the newest value and describes a chart in words", () => {
  expect(lastKnown([1, 2, null])).toBe(2);
  expect(lastKnown([null])).toBeNull();
  const data = { x: [1, 2], lines: [{ label: "mean", values: [0, 1] }] };
  expect(described("Reward", data, String)).toBe("Reward: mean from 0 to 1, between 0 and 1");
  expect(described("Reward", { x: [], lines: [] }, String)).toBe("Reward: no values yet");
});
