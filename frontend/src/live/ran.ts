// How long a job has run, without the time for which it was paused. Pure.
import type { JobRow } from "./rows";

export type JobTimes = Pick<JobRow, "started_at" | "ended_at" | "paused_at" | "paused_ms">;

/** Milliseconds until its end, its pause or now; null before it started. */
export function ranMs(times: JobTimes, now: number): number | null {
  if (times.started_at === null) return null;
  // A server of the release before sends nothing about pauses.
  return (times.ended_at ?? times.paused_at ?? now) - times.started_at - (times.paused_ms ?? 0);
}
