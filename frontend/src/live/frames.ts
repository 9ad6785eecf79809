// The frames of `/ws/live`: {v, topic, epoch, seq, kind, at, data}, with times in epoch milliseconds. The Python side
// is control_plane/live/frames.py. Snapshots and deltas hold the same kind of rows. A row replaces the one with its
// key, so applying a delta twice changes nothing.

export type FrameKind = "snapshot" | "delta" | "notice" | "error";
export type Position = [epoch: string, seq: number];

export interface Frame {
  v: number;
  topic: string;
  epoch: string;
  seq: number;
  kind: FrameKind;
  at: number;
  /** The rows of the topic. Its name decides their type, which the compiler cannot follow, so reducers cast. */
  data: Record<string, unknown>;
}

/** The prefix of topics for restricted pools. Without a pool's name after it, the topic carries only the heartbeat. */
export const POOL_PREFIX = "machines:";
export const OPEN_POOL = "default";

/** The name of the subscription that includes a topic: `jobs` covers all projects, `machines` all pools. */
export function subscriptionOf(topic: string): string {
  if (topic.startsWith("jobs:")) return "jobs";
  return topic.startsWith(POOL_PREFIX) ? "machines" : topic;
}
