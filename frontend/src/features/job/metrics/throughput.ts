// How many tokens a job trains per second of wall time, over consecutive updates. Pure.
//
// Updates are published in bursts, so the mean of their individual rates would be misleading. Every rate here is a sum
// of tokens divided by the sum of the time they took, from one publication to the next.

import { aligned, type ChartData, isWithin, type Points, type Range } from "../../../charts/lines/series";
import type { RewardRow } from "../../../live/rows";
import { itemAt, numberAt } from "../../../values/columns";

/** Each point of the line averages over at least this fraction of the time that the chart spans. */
const LEAST_PART = 1 / 20;
const LEAST_MS = 5000;

/** One update, or several gathered in one row. */
interface Trained {
  step: number;
  tokens: number;
  /** Time from the publication before the first update to that of the last. */
  ms: number;
}

export function throughput(tokens: Points | undefined, rewards: readonly RewardRow[], width = 1): ChartData {
  const trained = trainedOf(tokens, rewards);
  if (trained.length === 0) return { x: [], lines: [] };
  const allMs = trained.reduce((sum, { ms }) => sum + ms, 0);
  const leastMs = Math.max(Math.min(LEAST_MS, allMs), allMs * LEAST_PART);
  const { x, lines } = aligned([{ label: "tokens/s", points: ratesOf(trained, leastMs) }], width);
  return { x, lines: lines.map((line) => ({ ...line, summary: (shown) => rateIn(trained, shown) })) };
}

/** The rows whose duration is known, because the times of both publications are known. */
function trainedOf(tokens: Points | undefined, rewards: readonly RewardRow[]): Trained[] {
  const publishedAt = new Map(rewards.map(({ batch, at }) => [batch, at]));
  const { step = [], value = [], count, mean, first_step } = tokens ?? {};
  return step.flatMap((last, i) => {
    const [since, at] = [publishedAt.get((first_step?.[i] ?? last) - 1), publishedAt.get(last)];
    if (since == null || at == null || at < since) return [];
    return [{ step: last, ms: at - since, tokens: (mean?.[i] ?? numberAt(value, i)) * (count?.[i] ?? 1) }];
  });
}

/** For each row, the rate over the newest rows that together took `leastMs`. Starts once there are enough. */
function ratesOf(trained: readonly Trained[], leastMs: number): Points {
  const step: number[] = [];
  const value: number[] = [];
  let [begin, tokens, ms] = [0, 0, 0];
  trained.forEach((row, i) => {
    tokens += row.tokens;
    ms += row.ms;
    while (begin < i) {
      const oldest = itemAt(trained, begin);
      if (ms - oldest.ms < leastMs) break;
      tokens -= oldest.tokens;
      ms -= oldest.ms;
      begin++;
    }
    if (ms === 0 || ms < leastMs) return;
    step.push(row.step);
    value.push(tokens / (ms / 1000));
  });
  return { step, value };
}

/** The rate over the rows in a range of updates, or over all rows if it is null. */
function rateIn(trained: readonly Trained[], shown: Range | null): number | null {
  const inside = trained.filter(({ step }) => shown === null || isWithin(step, shown));
  const ms = inside.reduce((sum, row) => sum + row.ms, 0);
  return ms > 0 ? inside.reduce((sum, row) => sum + row.tokens, 0) / (ms / 1000) : null;
}
