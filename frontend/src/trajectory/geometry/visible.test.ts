import { describe, expect, it } from "vitest";
import { floatAt, intAt } from "../../values/columns";
import { NONE, ROOT, SAMPLED } from "../forest/Forest";
import { forestOf } from "../forest/testing";
import { layoutOf } from "./layout";
import { clamped, fitView, MAX_PX_PER_ROW, panned, screenX, screenY, toWorld, zoomed } from "./view";
import { nodeAt, visibleOf } from "./visible";

const SIZE = { width: 1200, height: 700 };
/** A root with many branches of three answers each. */
const bush = (numBranches: number) =>
  forestOf([
    [-1, ROOT, 50],
    ...Array.from({ length: 3 * numBranches }, (_, n): [number, number, number] => [
      n % 3 === 0 ? 0 : n,
      SAMPLED,
      40 + (n % 60),
    ]),
  ]);

describe("what a view shows", () => {
  it("is all of a small forest that fits the canvas", () => {
    const forest = bush(5);
    const layout = layoutOf(forest);
    expect(visibleOf(forest, layout, fitView(layout, SIZE)).nodes).toHaveLength(forest.numNodes);
  });

  it("is limited by the pixels of the canvas, not by the size of the forest", () => {
    const forest = bush(10_000);
    const layout = layoutOf(forest);
    expect(forest.numNodes).toBe(30_001);
    expect(visibleOf(forest, layout, fitView(layout, SIZE)).nodes.length).toBeLessThan(12 * SIZE.height);
  });

  it("matches a search through all nodes when rows are tall", () => {
    const forest = bush(300);
    const layout = layoutOf(forest);
    const middle = panned(zoomed(fitView(layout, SIZE), 30, 600, 350), 40, -90);
    const view = { ...middle, pxPerRow: 12 };
    const right = view.left + view.width / view.pxPerToken;
    const bottom = view.top + view.height / view.pxPerRow;
    const expected: number[] = [];
    for (let node = 0; node < forest.numNodes; node++) {
      const [x, y] = [floatAt(layout.x, node), floatAt(layout.y, node)];
      const end = x + intAt(forest.numTokens, node);
      if (x <= right && end >= view.left && y + 1 >= view.top && y <= bottom) expected.push(node);
    }
    expect(visibleOf(forest, layout, view).nodes.sort((a, b) => a - b)).toEqual(expected);
    expect(expected.length).toBeGreaterThan(10);
  });

  it("includes the node under the pointer and none beside it", () => {
    const forest = bush(8);
    const layout = layoutOf(forest);
    const view = fitView(layout, SIZE);
    for (const node of [0, 4, 11, 24]) {
      const x = screenX(view, floatAt(layout.x, node) + 20);
      const world = toWorld(view, x, screenY(view, floatAt(layout.y, node)));
      expect(nodeAt(forest, layout, view, world.x, world.y)).toBe(node);
    }
    expect(nodeAt(forest, layout, view, layout.width + 500, 3)).toBe(NONE);
  });
});

describe("a view", () => {
  const layout = { width: 5000, height: 400 };

  it("fits the whole forest with a margin", () => {
    const view = fitView(layout, SIZE);
    expect(screenX(view, 0)).toBeGreaterThan(0);
    expect(screenX(view, layout.width)).toBeLessThan(SIZE.width);
    expect(screenY(view, -0.5)).toBeGreaterThan(0);
    expect(screenY(view, layout.height - 0.5)).toBeLessThan(SIZE.height);
  });

  it("keeps the point under the pointer fixed while zooming on either axis", () => {
    for (const axis of ["both", "tokens", "rows"] as const) {
      const view = fitView(layout, SIZE);
      const before = toWorld(view, 300, 200);
      const after = toWorld(zoomed(view, 1.7, 300, 200, axis), 300, 200);
      expect(after.x).toBeCloseTo(before.x, 6);
      expect(after.y).toBeCloseTo(before.y, 6);
    }
    expect(zoomed(fitView(layout, SIZE), 1e6, 0, 0).pxPerRow).toBe(MAX_PX_PER_ROW);
  });

  it("always keeps some of the forest in sight", () => {
    const view = clamped(panned(fitView(layout, SIZE), -1e9, 1e9), layout);
    expect(screenX(view, layout.width)).toBeGreaterThan(0);
    expect(screenY(view, 0)).toBeLessThan(SIZE.height);
  });
});
