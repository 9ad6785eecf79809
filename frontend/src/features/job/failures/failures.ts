// The failed attempts in the updates shown: how many by kind, how many went on after their recorded answers, and their
// lengths beside those of the sessions with an outcome. Pure.
import type { Points } from "../../../charts/lines/series";
import { type Metrics, sumOf } from "../metrics/catalogue";

const OF_KIND = "rollout/num_failed/";
const WORDS: Record<string, string> = {
  agent: "the agent broke",
  setup: "the set-up failed",
  waiting: "a tool or service did not answer",
  grading: "the judge failed",
  engine: "the policy did not answer",
  machine: "the machine was lost or drained",
  timeout: "the task's time was up",
};

export interface Failures {
  num: number;
  numResumed: number;
  kinds: { kind: string; words: string; num: number }[];
  /** Sampled tokens, as the mean over the updates; null if no update has the figure. */
  failedLength: number | null;
  outcomeLength: number | null;
}

/** The failures in the updates of these metrics; null if there was none. */
export function failuresOf(metrics: Metrics): Failures | null {
  const num = Math.round(sumOf(metrics.get("rollout/num_failed")));
  if (num === 0) return null;
  const kinds = [...metrics]
    .filter(([name]) => name.startsWith(OF_KIND))
    .map(([name, points]) => ({ kind: name.slice(OF_KIND.length), num: Math.round(sumOf(points)) }))
    .filter((row) => row.num > 0)
    .map((row) => ({ ...row, words: WORDS[row.kind] ?? row.kind }))
    .sort((a, b) => b.num - a.num);
  return {
    num,
    numResumed: Math.round(sumOf(metrics.get("rollout/num_failed_resumed"))),
    kinds,
    failedLength: meanOf(metrics.get("rollout/failed_length_mean")),
    outcomeLength: meanOf(metrics.get("rollout/length_mean")),
  };
}

function meanOf(points: Points | undefined): number | null {
  const num = points?.count?.reduce((sum, one) => sum + one, 0) ?? points?.value.length ?? 0;
  return num === 0 ? null : sumOf(points) / num;
}
