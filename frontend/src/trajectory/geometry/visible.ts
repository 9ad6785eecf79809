// Finds the nodes that a view shows. Pure.
//
// The tree is its own spatial index: a subtree whose extent misses the view is skipped, bisection finds the first
// visible one of many children, and a subtree less than a pixel high is drawn as its longest branch alone. The number
// of nodes to draw therefore depends on the pixels of the canvas and not on the size of the forest.
import { floatAt, intAt } from "../../values/columns";
import { type Forest, NONE } from "../forest/Forest";
import { type Layout, widthOf } from "./layout";
import { screenX, screenY, type View } from "./view";

/** A subtree less high than this is drawn as one line. */
export const MERGE_BELOW_PX = 0.9;
/** A strip is skipped if it ends in the same pixel as the previous strip of its line. */
const SAME_PX = 0.5;
/** A later line in a row of pixels is drawn only if it extends at least this far beyond the earlier ones. */
const FURTHER_PX = 2;

export interface Visible {
  /** Nodes whose strips are in sight, in depth-first order. */
  nodes: number[];
  /** Nodes whose lines to their children are in sight. */
  forks: number[];
}

export function visibleOf(forest: Forest, layout: Layout, view: View): Visible {
  const found: Visible = { nodes: [], forks: [] };
  const right = view.left + view.width / view.pxPerToken;
  const bottom = view.top + view.height / view.pxPerRow;
  const isInSight = (node: number) =>
    floatAt(layout.x, node) <= right &&
    floatAt(layout.right, node) >= view.left &&
    floatAt(layout.top, node) <= bottom &&
    floatAt(layout.bottom, node) + 1 >= view.top;
  const drawnRow = new RowMask(view.height);
  const stack = [...layout.roots].reverse();
  for (let node = stack.pop(); node !== undefined; node = stack.pop()) {
    if (!isInSight(node)) continue;
    const heightPx = (floatAt(layout.bottom, node) - floatAt(layout.top, node)) * view.pxPerRow;
    if (heightPx < MERGE_BELOW_PX && view.pxPerRow < MERGE_BELOW_PX) {
      const [y, end] = [screenY(view, floatAt(layout.y, node)), screenX(view, floatAt(layout.right, node))];
      const drawn = drawnRow.extend(y, end);
      if (drawn < end)
        longestBranch(forest, layout, view, node, right, view.left + drawn / view.pxPerToken, found.nodes);
      continue;
    }
    const end = floatAt(layout.x, node) + widthOf(forest, node);
    if (end >= view.left && rowInSight(layout, view, node, bottom)) found.nodes.push(node);
    const [first, last] = childrenInSight(layout, node, view.top - 1, bottom);
    if (first < last) found.forks.push(node);
    for (let index = last - 1; index >= first; index--) stack.push(intAt(layout.children, index));
  }
  return found;
}

/** Remembers how far each row of pixels is already drawn, because a shorter line in the same row would add nothing. */
class RowMask {
  readonly #ends: Float64Array;

  constructor(height: number) {
    this.#ends = new Float64Array(Math.max(Math.ceil(height), 1)).fill(Number.NEGATIVE_INFINITY);
  }

  /** Returns how far this row was drawn before, or infinity if a line to `end` would add nothing visible. */
  extend(y: number, end: number): number {
    const row = Math.floor(y);
    const drawn = this.#ends[row];
    if (drawn === undefined || end < drawn + FURTHER_PX) return Number.POSITIVE_INFINITY;
    this.#ends[row] = end;
    return drawn;
  }
}

function rowInSight(layout: Layout, view: View, node: number, bottom: number): boolean {
  const y = floatAt(layout.y, node);
  return y + 1 >= view.top && y <= bottom;
}

/** A range of `layout.children`, whose entries are in the order of their rows. */
function childrenInSight(layout: Layout, node: number, top: number, bottom: number): [first: number, end: number] {
  const [begin, end] = [intAt(layout.firstOf, node), intAt(layout.firstOf, node + 1)];
  let low = begin;
  let high = end;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (floatAt(layout.bottom, intAt(layout.children, middle)) < top) low = middle + 1;
    else high = middle;
  }
  let last = low;
  while (last < end && floatAt(layout.top, intAt(layout.children, last)) <= bottom) last++;
  return [low, last];
}

/** Appends the nodes of the longest branch starting at `from` whose strips end beyond `drawn` (in tokens). */
function longestBranch(
  forest: Forest,
  layout: Layout,
  view: View,
  from: number,
  right: number,
  drawn: number,
  nodes: number[],
): void {
  let drawnTo = Math.max(drawn, view.left - 1);
  for (let node = from; node !== NONE && floatAt(layout.x, node) <= right; node = longestChild(layout, node)) {
    const end = floatAt(layout.x, node) + widthOf(forest, node);
    if ((end - drawnTo) * view.pxPerToken < SAME_PX) continue;
    nodes.push(node);
    drawnTo = end;
  }
}

function longestChild(layout: Layout, node: number): number {
  let longest = NONE;
  for (let index = intAt(layout.firstOf, node); index < intAt(layout.firstOf, node + 1); index++) {
    const child = intAt(layout.children, index);
    if (longest === NONE || floatAt(layout.right, child) > floatAt(layout.right, longest)) longest = child;
  }
  return longest;
}

/** The node at a point of the world, or NONE. Tolerates near misses of low rows and thin strips. */
export function nodeAt(forest: Forest, layout: Layout, view: View, x: number, y: number): number {
  const slackX = 3 / view.pxPerToken;
  const slackY = Math.max(0, (4 - view.pxPerRow / 2) / view.pxPerRow);
  let best = NONE;
  let bestDistance = Number.POSITIVE_INFINITY;
  for (const node of visibleOf(forest, layout, view).nodes) {
    const left = floatAt(layout.x, node);
    if (x < left - slackX || x > left + widthOf(forest, node) + slackX) continue;
    const distance = Math.abs(y - 0.5 - floatAt(layout.y, node));
    if (distance <= 0.5 + slackY && distance < bestDistance) {
      best = node;
      bestDistance = distance;
    }
  }
  return best;
}
