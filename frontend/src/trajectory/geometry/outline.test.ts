import { describe, expect, it } from "vitest";
import { ROOT, SAMPLED } from "../forest/Forest";
import { forestOf } from "../forest/testing";
import { layoutOf } from "./layout";
import { forksAbove, outlineOf } from "./outline";

// 0 ── 1 ──┬─ 2 ── 3
//          └─ 4
const forest = forestOf([
  [-1, ROOT, 5],
  [0, SAMPLED, 5],
  [1, 1, 5],
  [2, SAMPLED, 5],
  [1, SAMPLED, 5],
]);
const layout = layoutOf(forest);
const shown = (open: number[]) => outlineOf(forest, layout, new Set(open)).map(({ node, level }) => [node, level]);

describe("the outline of a forest", () => {
  it("keeps a conversation on one level and its forks closed", () => {
    expect(shown([])).toEqual([
      [0, 1],
      [1, 1],
    ]);
  });

  it("goes one level deeper at an open fork", () => {
    expect(shown([1])).toEqual([
      [0, 1],
      [1, 1],
      [2, 2],
      [3, 2],
      [4, 2],
    ]);
  });

  it("finds the forks that hide a node", () => {
    expect(forksAbove(forest, layout, 3)).toEqual([1]);
    expect(forksAbove(forest, layout, 1)).toEqual([]);
  });

  it("lists a chain of thirty thousand nodes", () => {
    const chain = Array.from({ length: 30_000 }, (_, n): [number, number, number] => [n - 1, n ? SAMPLED : ROOT, 1]);
    const long = forestOf(chain);
    expect(outlineOf(long, layoutOf(long), new Set())).toHaveLength(30_000);
  });
});
