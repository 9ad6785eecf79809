// Rows as built by control_plane/live/rows.py. Times in epoch milliseconds; null is "not known", never zero.

export type JobState =
  | "queued"
  | "starting"
  | "running"
  | "pausing"
  | "paused"
  | "cancelling"
  | "completed"
  | "failed"
  | "cancelled"
  | "lost";

export interface JobRow {
  id: string;
  name: string;
  project: string;
  owner: string | null;
  state: JobState;
  state_reason: string;
  waiting_reason: string;
  desired: "run" | "pause" | "cancel";
  latest_version: number;
  /** Did best on the held-out tasks. */
  best_version: number | null;
  num_updates_done: number;
  num_updates: number;
  created_at: number;
  started_at: number | null;
  ended_at: number | null;
}

export interface PhaseRow {
  id: string;
  machine: string;
  role: "rollout" | "train" | "agent";
  state: "leased" | "starting" | "active" | "draining" | "ended" | "failed";
  reason: string;
  fence: number;
  desired_version: number;
  served_version: number | null;
  num_batches: number | null;
  gang_member: number | null;
  leased_at: number;
  ended_at: number | null;
}

export interface MachineRow {
  id: string;
  name: string;
  tags: string[];
  pool: string;
  generation: number;
  is_cordoned: boolean;
  is_draining: boolean;
  is_healthy: boolean;
  reason: string;
  role: PhaseRow["role"] | null;
  phase_state: PhaseRow["state"] | null;
  version: number | null;
  open_state: string;
  open_cause: string;
  open_since: number | null;
  capabilities: { num_cores?: number; memory_bytes?: number; accelerators?: string[] };
}

export interface IntervalRow {
  id: number;
  machine: string;
  state: string;
  cause: string;
  start: number;
  end: number;
}

/** An edit of a machine's desired state. */
export interface EditRow {
  id: number;
  machine: string;
  at: number;
  reason: string;
  author: string;
  before: { tags?: string[]; is_cordoned?: boolean; is_draining?: boolean };
  after: { tags?: string[]; is_cordoned?: boolean; is_draining?: boolean };
}

export interface EventRow {
  id: number;
  at: number;
  kind: string;
  from: string;
  to: string;
  reason: string;
  author: string;
  data: Record<string, unknown>;
}

export interface MetricRow {
  name: string;
  step: number;
  value: number;
}

export interface RewardRow {
  batch: number;
  /** Of the mean rewards of the groups: their mean, their 10th and their 90th percentile. */
  mean: number;
  low: number;
  high: number;
  num_groups: number;
  /** Mean sampled tokens and turns of an episode. */
  tokens: number | null;
  turns: number | null;
  /** When the update was published. */
  at: number | null;
}

export interface GroupRow {
  id: string;
  index: number;
  state: "open" | "ready" | "batched" | "dropped" | "evaluating" | "evaluated";
  reason: string;
  size: number;
  num_rewarded: number;
  reward_mean: number | null;
  reward_std: number | null;
  min_version: number | null;
  max_version: number | null;
  batch: number | null;
  created_at: number;
}
