// The forest as an indented list, for keyboards and screen readers. Pure.
//
// A conversation stays at one level and only a fork goes deeper, so a session of a thousand turns is not a thousand
// levels deep. Branches below a fork stay closed until the user opens them.
import { intAt } from "../../values/columns";
import { type Forest, NONE } from "../forest/Forest";
import type { Layout } from "./layout";

export interface OutlineRow {
  node: number;
  level: number;
  /** Position among the entries of its level, counted from 1, and the number of those entries. */
  position: number;
  size: number;
  /** Whether branches fork here, and whether they are shown. */
  isFork: boolean;
  isOpen: boolean;
}

export function outlineOf(forest: Forest, layout: Layout, open: ReadonlySet<number>): OutlineRow[] {
  const rows: OutlineRow[] = [];
  const pending: { chains: number[]; level: number }[] = [{ chains: [...layout.roots].reverse(), level: 1 }];
  // Depth first with a stack of the branches still to be listed instead of recursion, because forests can be deep.
  for (let top = pending.at(-1); top; top = pending.at(-1)) {
    const head = top.chains.pop();
    if (head === undefined) {
      pending.pop();
      continue;
    }
    const chain = chainFrom(layout, head);
    for (const [position, node] of chain.entries()) {
      const [first, end] = [intAt(layout.firstOf, node), intAt(layout.firstOf, node + 1)];
      const isFork = end - first > 1;
      const isOpen = isFork && open.has(node);
      rows.push({ node, level: top.level, position: position + 1, size: chain.length, isFork, isOpen });
      if (isOpen) {
        const chains = [...layout.children.subarray(first, end)].reverse();
        pending.push({ chains, level: top.level + 1 });
      }
    }
  }
  return rows.filter(({ node }) => node !== NONE && !forest.isGone(node));
}

/** A node and its descendants up to the first fork. */
function chainFrom(layout: Layout, head: number): number[] {
  const chain = [head];
  for (let node = head; ; ) {
    const [first, end] = [intAt(layout.firstOf, node), intAt(layout.firstOf, node + 1)];
    if (end - first !== 1) return chain;
    node = intAt(layout.children, first);
    chain.push(node);
  }
}

/** The forks above a node. All of them must be open for the node to be listed. */
export function forksAbove(forest: Forest, layout: Layout, node: number): number[] {
  const forks: number[] = [];
  for (let above = intAt(forest.parent, node); above !== NONE; above = intAt(forest.parent, above)) {
    if (intAt(layout.firstOf, above + 1) - intAt(layout.firstOf, above) > 1) forks.push(above);
  }
  return forks;
}
