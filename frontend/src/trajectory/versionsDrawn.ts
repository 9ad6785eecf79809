// The versions that sampled what a forest shows. Pure.
import { type Forest, SAMPLED } from "./Forest";

/** From the oldest to the newest, growing answers included; null while nothing is sampled. Unknown versions are left out. */
export function versionsDrawn(forest: Forest): [oldest: number, newest: number] | null {
  let [oldest, newest] = [Number.POSITIVE_INFINITY, Number.NEGATIVE_INFINITY];
  for (let node = 0; node < forest.numNodes; node++) {
    const [low, high] = [forest.minVersion[node] as number, forest.maxVersion[node] as number];
    if (forest.kind[node] !== SAMPLED || forest.isGone(node) || low < 0) continue;
    oldest = Math.min(oldest, low);
    newest = Math.max(newest, high);
  }
  return newest < oldest ? null : [oldest, newest];
}
