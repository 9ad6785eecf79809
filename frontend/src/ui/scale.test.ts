import { expect, test } from "vitest";
import { scaleOf } from "./scale";

test("curves have one scale, from their smallest to their largest value", () => {
  const curves = [[[1, 0.06] as const, [2, 0.3] as const], [[1, 0.94] as const], []];
  expect(scaleOf(curves)).toEqual([0.06, 0.94]);
});

test("there is no scale without values, and a level one has a height", () => {
  expect(scaleOf([[], []])).toBeUndefined();
  const [low, high] = scaleOf([[[1, 0.5]]]) ?? [0, 0];
  expect(high).toBeGreaterThan(low);
});
