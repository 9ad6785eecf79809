import { describe, expect, it } from "vitest";
import { floatAt, intAt, itemAt, numberAt } from "../../values/columns";
import { Forest, NONE, ROOT, SAMPLED } from "../forest/Forest";
import { forestOf } from "../forest/testing";
import { session } from "../wire/testing";
import { GAP, layoutOf, MIN_WIDTH, stretch } from "./layout";

describe("the layout of a forest", () => {
  it("puts a conversation on one row, each node after its parent", () => {
    const forest = forestOf([
      [-1, ROOT, 10],
      [0, SAMPLED, 20],
      [1, 1, 5],
      [2, SAMPLED, 30],
    ]);
    const layout = layoutOf(forest);
    expect([...layout.y]).toEqual([0, 0, 0, 0]);
    expect([...layout.x]).toEqual([0, 10 + GAP, 30 + 2 * GAP, 35 + 3 * GAP]);
    expect(layout.width).toBe(65 + 3 * GAP);
    expect(layout.height).toBe(1);
  });

  it("gives each branch its own row and puts the parent on the row of the longest", () => {
    const forest = forestOf([
      [-1, ROOT, 10],
      [0, SAMPLED, 5],
      [0, SAMPLED, 50],
      [0, SAMPLED, 7],
    ]);
    const layout = layoutOf(forest);
    expect([...layout.y].slice(1)).toEqual([0, 1, 2]);
    expect(layout.y[0]).toBe(1);
    expect([layout.top[0], layout.bottom[0]]).toEqual([0, 2]);
    expect(layout.right[0]).toBe(10 + GAP + 50);
  });

  it("centres a common prompt among its sessions, which are in slot order", () => {
    const forest = new Forest();
    forest.setSessions([session("b", 1), session("a", 0)]);
    for (const id of ["b", "a"]) {
      forest.addRow({ ...row(id, 0, null, ROOT, 10), prompt: 77 });
      forest.addRow(row(id, 1, 0, SAMPLED, 10));
    }
    const layout = layoutOf(forest);
    expect(layout.roots).toHaveLength(1);
    const [a, b] = [forest.nodeAt(1, 1), forest.nodeAt(0, 1)];
    expect(layout.y[a]).toBeLessThan(floatAt(layout.y, b));
    expect(layout.y[numberAt(layout.roots, 0)]).toBeCloseTo((floatAt(layout.y, a) + floatAt(layout.y, b)) / 2);
  });

  it("never overlaps two strips of one row, whatever the tree", () => {
    const forest = forestOf(randomTree(600));
    const layout = layoutOf(forest);
    const rows = new Map<number, [number, number][]>();
    for (let node = 0; node < forest.numNodes; node++) {
      const [x, y] = [floatAt(layout.x, node), floatAt(layout.y, node)];
      rows.set(y, [...(rows.get(y) ?? []), [x, x + Math.max(intAt(forest.numTokens, node), MIN_WIDTH)]]);
      const parent = intAt(forest.parent, node);
      if (parent === NONE) continue;
      expect(layout.right[parent]).toBeGreaterThanOrEqual(floatAt(layout.right, node));
      expect(layout.top[parent]).toBeLessThanOrEqual(floatAt(layout.top, node));
      expect(layout.bottom[parent]).toBeGreaterThanOrEqual(floatAt(layout.bottom, node));
    }
    for (const strips of rows.values()) {
      strips.sort((a, b) => a[0] - b[0]);
      for (let i = 1; i < strips.length; i++) expect(itemAt(strips, i)[0]).toBeGreaterThan(itemAt(strips, i - 1)[1]);
    }
  });

  it("moves only the ends of answers when they grow", () => {
    const forest = forestOf([
      [-1, ROOT, 10],
      [0, SAMPLED, 5],
      [0, SAMPLED, 8],
    ]);
    const layout = layoutOf(forest);
    forest.numTokens[1] = 500;
    stretch(forest, layout, [1]);
    const whole = layoutOf(forest);
    expect(layout.right).toEqual(whole.right);
    expect(layout.width).toBe(whole.width);
    expect(layout.x).toEqual(whole.x);
  });

  it("handles a conversation of a hundred thousand turns", () => {
    const chain = Array.from({ length: 100_000 }, (_, n): [number, number, number] => [n - 1, n ? SAMPLED : ROOT, 1]);
    expect(layoutOf(forestOf(chain)).height).toBe(1);
  });
});

function row(id: string, index: number, parent: number | null, kind: number, numTokens: number) {
  return {
    session: id,
    index,
    parent,
    kind,
    num_tokens: numTokens,
    spans: kind === SAMPLED ? [0, 3] : [],
    mean_logprob: null,
    marks: 0,
    handover_at: [],
    turn: `${id}${index}`,
    prompt: 0,
  };
}

function randomTree(size: number): [number, number, number][] {
  let seed = 5;
  const draw = (below: number) => {
    seed = (seed * 1103515245 + 12345) % 2147483648;
    return seed % below;
  };
  return Array.from({ length: size }, (_, n) => [n === 0 ? -1 : draw(n), n === 0 ? ROOT : SAMPLED, draw(40)]);
}
