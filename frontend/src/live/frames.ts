// What `/ws/live` carries: frames {v, topic, epoch, seq, kind, at, data}, times in epoch milliseconds. The Python side is
// control_plane/live/frames.py. Rows of a snapshot and of a delta look alike; a row replaces the one with its key, so
// applying a delta twice changes nothing.

export type FrameKind = "snapshot" | "delta" | "notice" | "error";
export type Position = [epoch: string, seq: number];

export interface Frame {
  v: number;
  topic: string;
  epoch: string;
  seq: number;
  kind: FrameKind;
  at: number;
  data: Record<string, unknown>;
}

/** Machines of a pool that is not open to all; without a name after it, a topic that carries nothing but the beat. */
export const POOL_PREFIX = "machines:";
export const OPEN_POOL = "default";

/** The name by which a client subscribes to a topic: `jobs` stands for one per project, `machines` for one per pool. */
export function subscriptionOf(topic: string): string {
  if (topic.startsWith("jobs:")) return "jobs";
  return topic.startsWith(POOL_PREFIX) ? "machines" : topic;
}
