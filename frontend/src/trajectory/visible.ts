// Which nodes a view shows. Pure.
//
// The tree is its own spatial index: a subtree whose extent misses the view is left out whole, among many children the
// first in sight is found by bisection, and subtrees lower than a pixel are shown by their longest branch alone. So the
// number of nodes to draw depends on the pixels of the canvas and not on the size of the forest.
import { type Forest, NONE } from "./Forest";
import { type Layout, widthOf } from "./layout";
import { screenX, screenY, type View } from "./view";

/** A lower subtree is drawn as one line. */
export const MERGE_BELOW_PX = 0.9;
/** Strips that end in the same pixel as the last of their line are not drawn again. */
const SAME_PX = 0.5;
/** Of lines in one row of pixels a later one is drawn where it reaches further by so much. */
const FURTHER_PX = 2;

export interface Visible {
  /** Nodes whose strip is in sight, in depth-first order. */
  nodes: number[];
  /** Nodes whose joining lines to their children are in sight. */
  forks: number[];
}

export function visibleOf(forest: Forest, layout: Layout, view: View): Visible {
  const found: Visible = { nodes: [], forks: [] };
  const right = view.left + view.width / view.pxPerToken;
  const bottom = view.top + view.height / view.pxPerRow;
  const isInSight = (node: number) =>
    (layout.x[node] as number) <= right &&
    (layout.right[node] as number) >= view.left &&
    (layout.top[node] as number) <= bottom &&
    (layout.bottom[node] as number) + 1 >= view.top;
  const drawnRow = new RowMask(view.height);
  const stack = [...layout.roots].reverse();
  while (stack.length) {
    const node = stack.pop() as number;
    if (!isInSight(node)) continue;
    const heightPx = ((layout.bottom[node] as number) - (layout.top[node] as number)) * view.pxPerRow;
    if (heightPx < MERGE_BELOW_PX && view.pxPerRow < MERGE_BELOW_PX) {
      const [y, end] = [screenY(view, layout.y[node] as number), screenX(view, layout.right[node] as number)];
      const drawn = drawnRow.extend(y, end);
      if (drawn < end)
        longestBranch(forest, layout, view, node, right, view.left + drawn / view.pxPerToken, found.nodes);
      continue;
    }
    const end = (layout.x[node] as number) + widthOf(forest, node);
    if (end >= view.left && rowInSight(layout, view, node, bottom)) found.nodes.push(node);
    const [first, last] = childrenInSight(layout, node, view.top - 1, bottom);
    if (first < last) found.forks.push(node);
    for (let place = last - 1; place >= first; place--) stack.push(layout.children[place] as number);
  }
  return found;
}

/** How far lines are drawn in each row of pixels: of several in one row only what reaches further adds anything. */
class RowMask {
  readonly #ends: Float64Array;

  constructor(height: number) {
    this.#ends = new Float64Array(Math.max(Math.ceil(height), 1)).fill(Number.NEGATIVE_INFINITY);
  }

  /** Up to where this row was drawn; infinity where a line to `end` would add nothing to see. */
  extend(y: number, end: number): number {
    const row = Math.floor(y);
    const drawn = this.#ends[row];
    if (drawn === undefined || end < drawn + FURTHER_PX) return Number.POSITIVE_INFINITY;
    this.#ends[row] = end;
    return drawn;
  }
}

function rowInSight(layout: Layout, view: View, node: number, bottom: number): boolean {
  const y = layout.y[node] as number;
  return y + 1 >= view.top && y <= bottom;
}

/** Places in `layout.children`: children lie in order of their rows. */
function childrenInSight(layout: Layout, node: number, top: number, bottom: number): [first: number, end: number] {
  const [begin, end] = [layout.firstOf[node] as number, layout.firstOf[node + 1] as number];
  let low = begin;
  let high = end;
  while (low < high) {
    const middle = (low + high) >> 1;
    if ((layout.bottom[layout.children[middle] as number] as number) < top) low = middle + 1;
    else high = middle;
  }
  let last = low;
  while (last < end && (layout.top[layout.children[last] as number] as number) <= bottom) last++;
  return [low, last];
}

/** The nodes of the longest branch from `from` on whose strips end beyond `drawn` (in tokens). */
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
  for (let node = from; node !== NONE && (layout.x[node] as number) <= right; node = longestChild(layout, node)) {
    const end = (layout.x[node] as number) + widthOf(forest, node);
    if ((end - drawnTo) * view.pxPerToken < SAME_PX) continue;
    nodes.push(node);
    drawnTo = end;
  }
}

function longestChild(layout: Layout, node: number): number {
  let longest = NONE;
  for (let place = layout.firstOf[node] as number; place < (layout.firstOf[node + 1] as number); place++) {
    const child = layout.children[place] as number;
    if (longest === NONE || (layout.right[child] as number) > (layout.right[longest] as number)) longest = child;
  }
  return longest;
}

/** The node at a place of the world, with a tolerance for low rows and thin strips; NONE where there is none. */
export function nodeAt(forest: Forest, layout: Layout, view: View, x: number, y: number): number {
  const slackX = 3 / view.pxPerToken;
  const slackY = Math.max(0, (4 - view.pxPerRow / 2) / view.pxPerRow);
  let best = NONE;
  let bestDistance = Number.POSITIVE_INFINITY;
  for (const node of visibleOf(forest, layout, view).nodes) {
    const left = layout.x[node] as number;
    if (x < left - slackX || x > left + widthOf(forest, node) + slackX) continue;
    const distance = Math.abs(y - 0.5 - (layout.y[node] as number));
    if (distance <= 0.5 + slackY && distance < bestDistance) {
      best = node;
      bestDistance = distance;
    }
  }
  return best;
}
