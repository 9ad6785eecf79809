// The state of a job as pages show it. Pure.

/** A job that the platform paused waits for a person, and must not look like one that a person paused. */
export const NEEDS_ATTENTION = "needs attention";

export function shownState(state: string, pausedBy: "platform" | "person" | null): string {
  return state === "paused" && pausedBy === "platform" ? NEEDS_ATTENTION : state;
}
