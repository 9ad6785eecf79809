// The frames of `/ws/live`: {v, topic, epoch, seq, kind, at, data}, with times in epoch milliseconds. Their types are
// generated from core/protocol/live_rows.py. Snapshots and deltas have the same kind of rows. A row replaces the one
// with its key, so applying a delta twice changes nothing.

export type { Frame, FrameKind } from "./live.gen";
export type Position = [epoch: string, seq: number];

/** The prefix of topics for restricted pools. Without a pool's name after it, the topic carries only the heartbeat. */
export const POOL_PREFIX = "machines:";
export const OPEN_POOL = "default";

/** The name of the subscription that includes a topic: `jobs` covers all projects, `machines` all pools. */
export function subscriptionOf(topic: string): string {
  if (topic.startsWith("jobs:")) return "jobs";
  return topic.startsWith(POOL_PREFIX) ? "machines" : topic;
}
