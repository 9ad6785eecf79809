// The versions that sampled the nodes of a forest. Pure.
import { intAt } from "../../values/columns";
import { type Forest, SAMPLED } from "./Forest";

/** The oldest and newest version, including growing answers but not unknown versions. Null while nothing is sampled. */
export function versionsDrawn(forest: Forest): [oldest: number, newest: number] | null {
  let [oldest, newest] = [Number.POSITIVE_INFINITY, Number.NEGATIVE_INFINITY];
  for (let node = 0; node < forest.numNodes; node++) {
    const [low, high] = [intAt(forest.minVersion, node), intAt(forest.maxVersion, node)];
    if (forest.kind[node] !== SAMPLED || forest.isGone(node) || low < 0) continue;
    oldest = Math.min(oldest, low);
    newest = Math.max(newest, high);
  }
  return newest < oldest ? null : [oldest, newest];
}
