// The forest as an indented list, for keyboards and screen readers. Pure.
//
// A conversation runs on at one level; only a fork goes deeper, so that a session of a thousand turns is not a thousand
// levels deep. Branches below a fork are closed until they are opened.
import { type Forest, NONE } from "./Forest";
import type { Layout } from "./layout";

export interface OutlineRow {
  node: number;
  level: number;
  /** Place among the entries of its level, from 1, and how many these are. */
  place: number;
  size: number;
  /** Whether branches fork here, and are shown. */
  isFork: boolean;
  isOpen: boolean;
}

export function outlineOf(forest: Forest, layout: Layout, open: ReadonlySet<number>): OutlineRow[] {
  const rows: OutlineRow[] = [];
  const pending: { chains: number[]; level: number }[] = [{ chains: [...layout.roots].reverse(), level: 1 }];
  // Depth first with a stack of branches still to be listed, so that depth costs no recursion.
  while (pending.length) {
    const top = pending.at(-1) as { chains: number[]; level: number };
    const head = top.chains.pop();
    if (head === undefined) {
      pending.pop();
      continue;
    }
    const chain = chainFrom(layout, head);
    for (const [place, node] of chain.entries()) {
      const [first, end] = [layout.firstOf[node] as number, layout.firstOf[node + 1] as number];
      const isFork = end - first > 1;
      const isOpen = isFork && open.has(node);
      rows.push({ node, level: top.level, place: place + 1, size: chain.length, isFork, isOpen });
      if (isOpen) {
        const chains = [...layout.children.subarray(first, end)].reverse();
        pending.push({ chains, level: top.level + 1 });
      }
    }
  }
  return rows.filter(({ node }) => node !== NONE && !forest.isGone(node));
}

/** A node and those below it as long as each is the only one. */
function chainFrom(layout: Layout, head: number): number[] {
  const chain = [head];
  for (let node = head; ; ) {
    const [first, end] = [layout.firstOf[node] as number, layout.firstOf[node + 1] as number];
    if (end - first !== 1) return chain;
    node = layout.children[first] as number;
    chain.push(node);
  }
}

/** Forks on the way to a node: what must be open for it to be listed. */
export function forksAbove(forest: Forest, layout: Layout, node: number): number[] {
  const forks: number[] = [];
  for (let above = forest.parent[node] as number; above !== NONE; above = forest.parent[above] as number) {
    if ((layout.firstOf[above + 1] as number) - (layout.firstOf[above] as number) > 1) forks.push(above);
  }
  return forks;
}
