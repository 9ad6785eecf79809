// A state with its colour. The word carries the meaning, and the colour only helps to spot it.

const TONES: Record<string, string> = {
  running: "good",
  completed: "good",
  active: "good",
  closed: "good",
  healthy: "good",
  batched: "good",
  evaluated: "good",
  finished: "good",
  ready: "info",
  open: "info",
  evaluating: "info",
  starting: "info",
  leased: "info",
  queued: "warn",
  pausing: "warn",
  paused: "warn",
  cancelling: "warn",
  draining: "warn",
  deleting: "warn",
  "not seen": "warn",
  cordoned: "warn",
  quarantined: "bad",
  "needs attention": "bad",
  failed: "bad",
  down: "bad",
  dropped: "bad",
};

export function StateBadge({ state, testId }: { state: string; testId?: string }) {
  return (
    <span className={`badge ${TONES[state] ?? "plain"}`} data-testid={testId}>
      {state}
    </span>
  );
}
