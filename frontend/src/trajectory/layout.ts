// Where each node of a forest lies. Pure.
//
// Across: tokens from the root on, so that a strip is as long as what was said; down: one row per branch. A parent lies
// on the row of its longest branch, so that a conversation runs straight and forks leave it; a prompt shared by several
// sessions lies in the middle of them. Coordinates: x in tokens, y in rows. Linear in the number of nodes.
import { type Forest, NONE, ROOT } from "./Forest";

/** Tokens between a node's end and the beginning of those below it: where the lines that join them run. */
export const GAP = 3;
/** A node without tokens is as wide as so many. */
export const MIN_WIDTH = 2;
const SESSION_GAP = 0.35;
const TREE_GAP = 1.2;

export interface Layout {
  x: Float64Array;
  y: Float32Array;
  /** Extent of everything at and below a node. */
  top: Float32Array;
  bottom: Float32Array;
  right: Float64Array;
  /** Children by row, one node's after another's: those of node n are `children[firstOf[n]]` to `children[firstOf[n + 1]]`. */
  children: Int32Array;
  firstOf: Int32Array;
  roots: number[];
  width: number;
  height: number;
}

export function widthOf(forest: Forest, node: number): number {
  return Math.max(forest.numTokens[node] as number, MIN_WIDTH);
}

export function layoutOf(forest: Forest): Layout {
  const count = forest.numNodes;
  const layout: Layout = {
    x: new Float64Array(count),
    y: new Float32Array(count),
    top: new Float32Array(count),
    bottom: new Float32Array(count),
    right: new Float64Array(count),
    ...childrenOf(forest),
    roots: forest.roots.filter((root) => !forest.isGone(root)),
    width: 0,
    height: 0,
  };
  let row = 0;
  for (const root of layout.roots) {
    if (row > 0) row += TREE_GAP - 1;
    row = placeTree(forest, layout, root, row);
    layout.width = Math.max(layout.width, layout.right[root] as number);
  }
  layout.height = row;
  return layout;
}

/** Children in order of appearance, those of a shared root by the slot of their session. */
function childrenOf(forest: Forest): Pick<Layout, "children" | "firstOf"> {
  const count = forest.numNodes;
  const children = new Int32Array(count);
  const firstOf = new Int32Array(count + 1);
  let place = 0;
  for (let node = 0; node < count; node++) {
    firstOf[node] = place;
    for (let child = forest.firstChild[node] as number; child !== NONE; child = forest.nextSibling[child] as number) {
      if (!forest.isGone(child)) children[place++] = child;
    }
    if (forest.kind[node] === ROOT && place - (firstOf[node] as number) > 1) {
      const rank = (child: number) => forest.sessions[forest.session[child] as number]?.slot ?? 0;
      children.subarray(firstOf[node], place).sort((a, b) => rank(a) - rank(b) || a - b);
    }
  }
  firstOf[count] = place;
  return { children, firstOf };
}

/** Depth first without recursion: a conversation may have thousands of turns. Returns the row after the tree. */
function placeTree(forest: Forest, layout: Layout, root: number, firstRow: number): number {
  const { x, children, firstOf } = layout;
  let row = firstRow;
  let lastSession = NONE;
  const order: number[] = [];
  const stack = [root];
  x[root] = 0;
  while (stack.length) {
    const node = stack.pop() as number;
    order.push(node);
    const [first, end] = [firstOf[node] as number, firstOf[node + 1] as number];
    if (first === end) {
      const session = forest.session[node] as number;
      if (session !== lastSession && lastSession !== NONE) row += SESSION_GAP;
      lastSession = session;
      layout.y[node] = row++;
    }
    const below = (x[node] as number) + widthOf(forest, node) + GAP;
    for (let place = end - 1; place >= first; place--) {
      const child = children[place] as number;
      x[child] = below;
      stack.push(child);
    }
  }
  for (let place = order.length - 1; place >= 0; place--) closeNode(forest, layout, order[place] as number);
  return row;
}

/** Once all below it is placed: a node's own row and the extent of its subtree. */
function closeNode(forest: Forest, layout: Layout, node: number): void {
  const { y, top, bottom, right, children, firstOf, x } = layout;
  const [first, end] = [firstOf[node] as number, firstOf[node + 1] as number];
  right[node] = (x[node] as number) + widthOf(forest, node);
  if (first === end) {
    top[node] = bottom[node] = y[node] as number;
    return;
  }
  const [eldest, youngest] = [children[first] as number, children[end - 1] as number];
  let longest = eldest;
  for (let place = first; place < end; place++) {
    const child = children[place] as number;
    if ((right[child] as number) > (right[longest] as number)) longest = child;
  }
  right[node] = right[longest] as number;
  top[node] = top[eldest] as number;
  bottom[node] = bottom[youngest] as number;
  const isShared = forest.session[eldest] !== forest.session[youngest];
  y[node] = isShared ? ((y[eldest] as number) + (y[youngest] as number)) / 2 : (y[longest] as number);
}

/** Answers that only became longer: their ends and those of what they hang under move, nothing else. */
export function stretch(forest: Forest, layout: Layout, nodes: Iterable<number>): void {
  for (const leaf of nodes) {
    if (leaf >= layout.right.length) continue;
    const end = (layout.x[leaf] as number) + widthOf(forest, leaf);
    for (let node = leaf; node !== NONE && (layout.right[node] as number) < end; node = forest.parent[node] as number) {
      layout.right[node] = end;
    }
    layout.width = Math.max(layout.width, end);
  }
}
