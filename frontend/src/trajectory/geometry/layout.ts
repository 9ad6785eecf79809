// Places each node of a forest. Pure.
//
// x counts tokens from the root, so a strip is as long as its text; y counts rows, one per branch. A parent lies on the
// row of its longest branch, so a conversation runs straight and forks leave it. A prompt of several sessions
// lies in their middle. Linear in the number of nodes.
import { floatAt, intAt, numberAt } from "../../values/columns";
import { type Forest, NONE, ROOT } from "../forest/Forest";

/** The gap in tokens between a node's end and its children's start, where the lines that join them are drawn. */
export const GAP = 3;
/** The width in tokens of a node that has none. */
export const MIN_WIDTH = 2;
const SESSION_GAP = 0.35;
const TREE_GAP = 1.2;

export interface Layout {
  x: Float64Array;
  y: Float32Array;
  /** The extent of a node's subtree, including the node itself. */
  top: Float32Array;
  bottom: Float32Array;
  right: Float64Array;
  /** Children by row, node after node: those of node n start at `firstOf[n]` and end before `firstOf[n + 1]`. */
  children: Int32Array;
  firstOf: Int32Array;
  roots: number[];
  width: number;
  height: number;
}

export function widthOf(forest: Forest, node: number): number {
  return Math.max(intAt(forest.numTokens, node), MIN_WIDTH);
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
    row = layTree(forest, layout, root, row);
    layout.width = Math.max(layout.width, floatAt(layout.right, root));
  }
  layout.height = row;
  return layout;
}

/**
 * Children are in order of appearance, except those of a common root, which are in the order of their sessions' slots.
 */
function childrenOf(forest: Forest): Pick<Layout, "children" | "firstOf"> {
  const count = forest.numNodes;
  const children = new Int32Array(count);
  const firstOf = new Int32Array(count + 1);
  let index = 0;
  for (let node = 0; node < count; node++) {
    firstOf[node] = index;
    for (let child = intAt(forest.firstChild, node); child !== NONE; child = intAt(forest.nextSibling, child)) {
      if (!forest.isGone(child)) children[index++] = child;
    }
    if (forest.kind[node] === ROOT && index - intAt(firstOf, node) > 1) {
      const rank = (child: number) => forest.sessions[intAt(forest.session, child)]?.slot ?? 0;
      children.subarray(firstOf[node], index).sort((a, b) => rank(a) - rank(b) || a - b);
    }
  }
  firstOf[count] = index;
  return { children, firstOf };
}

/** Depth first without recursion: a conversation may have thousands of turns. Returns the row after the tree. */
function layTree(forest: Forest, layout: Layout, root: number, firstRow: number): number {
  const { x, children, firstOf } = layout;
  let row = firstRow;
  let lastSession = NONE;
  const order: number[] = [];
  const stack = [root];
  x[root] = 0;
  for (let node = stack.pop(); node !== undefined; node = stack.pop()) {
    order.push(node);
    const [first, end] = [intAt(firstOf, node), intAt(firstOf, node + 1)];
    if (first === end) {
      const session = intAt(forest.session, node);
      if (session !== lastSession && lastSession !== NONE) row += SESSION_GAP;
      lastSession = session;
      layout.y[node] = row++;
    }
    const below = floatAt(x, node) + widthOf(forest, node) + GAP;
    for (let index = end - 1; index >= first; index--) {
      const child = intAt(children, index);
      x[child] = below;
      stack.push(child);
    }
  }
  for (let index = order.length - 1; index >= 0; index--) closeNode(forest, layout, numberAt(order, index));
  return row;
}

/** Sets a node's row and the extent of its subtree. Its children must have rows already. */
function closeNode(forest: Forest, layout: Layout, node: number): void {
  const { y, top, bottom, right, children, firstOf, x } = layout;
  const [first, end] = [intAt(firstOf, node), intAt(firstOf, node + 1)];
  right[node] = floatAt(x, node) + widthOf(forest, node);
  if (first === end) {
    top[node] = bottom[node] = floatAt(y, node);
    return;
  }
  const [eldest, youngest] = [intAt(children, first), intAt(children, end - 1)];
  let longest = eldest;
  for (let index = first; index < end; index++) {
    const child = intAt(children, index);
    if (floatAt(right, child) > floatAt(right, longest)) longest = child;
  }
  right[node] = floatAt(right, longest);
  top[node] = floatAt(top, eldest);
  bottom[node] = floatAt(bottom, youngest);
  const isShared = forest.session[eldest] !== forest.session[youngest];
  y[node] = isShared ? (floatAt(y, eldest) + floatAt(y, youngest)) / 2 : floatAt(y, longest);
}

/**
 * Updates the layout for answers that only grew longer: the ends of these nodes and of their ancestors move, nothing
 * else.
 */
export function stretch(forest: Forest, layout: Layout, nodes: Iterable<number>): void {
  for (const leaf of nodes) {
    if (leaf >= layout.right.length) continue;
    const end = floatAt(layout.x, leaf) + widthOf(forest, leaf);
    for (let node = leaf; node !== NONE && floatAt(layout.right, node) < end; node = intAt(forest.parent, node)) {
      layout.right[node] = end;
    }
    layout.width = Math.max(layout.width, end);
  }
}
