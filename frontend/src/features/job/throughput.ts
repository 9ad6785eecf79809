// How many tokens a job trains in a second: tokens over wall time, of updates one after another. Pure.
//
// Updates are published in bursts, so a mean of their single rates is far from what the job does: every figure here is
// a sum of tokens over the sum of the time that they took, from one publication to the next.
import { aligned, type ChartData, isWithin, type Points, type Range } from "../../charts/series";
import type { RewardRow } from "../../live/rows";

/** A point of the line is taken over at least this part of the time that the chart spans. */
const LEAST_PART = 1 / 20;
const LEAST_MS = 5000;

/** An update, or several that were gathered in one row. */
interface Trained {
  step: number;
  tokens: number;
  /** From the publication before the first of them to that of the last. */
  ms: number;
}

export function throughput(tokens: Points | undefined, rewards: readonly RewardRow[], width = 1): ChartData {
  const trained = trainedOf(tokens, rewards);
  if (trained.length === 0) return { x: [], lines: [] };
  const allMs = trained.reduce((sum, { ms }) => sum + ms, 0);
  const leastMs = Math.max(Math.min(LEAST_MS, allMs), allMs * LEAST_PART);
  const { x, lines } = aligned([{ label: "tokens/s", points: ratesOf(trained, leastMs) }], width);
  return { x, lines: lines.map((line) => ({ ...line, said: (shown) => rateIn(trained, shown) })) };
}

/** What was trained in a time that is known: where both publications are. */
function trainedOf(tokens: Points | undefined, rewards: readonly RewardRow[]): Trained[] {
  const publishedAt = new Map(rewards.map(({ batch, at }) => [batch, at]));
  const { step = [], value = [], count, mean, first_step } = tokens ?? {};
  return step.flatMap((last, i) => {
    const [since, at] = [publishedAt.get((first_step?.[i] ?? last) - 1), publishedAt.get(last)];
    if (since == null || at == null || at < since) return [];
    return [{ step: last, ms: at - since, tokens: (mean?.[i] ?? (value[i] as number)) * (count?.[i] ?? 1) }];
  });
}

/** At each row the rate of the newest ones that together took `leastMs`; nothing before there are as many. */
function ratesOf(trained: readonly Trained[], leastMs: number): Points {
  const step: number[] = [];
  const value: number[] = [];
  let [begin, tokens, ms] = [0, 0, 0];
  trained.forEach((row, i) => {
    tokens += row.tokens;
    ms += row.ms;
    for (
      let oldest = trained[begin] as Trained;
      begin < i && ms - oldest.ms >= leastMs;
      oldest = trained[begin] as Trained
    ) {
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

/** Of the rows in a range of updates; of all where it is null. */
function rateIn(trained: readonly Trained[], shown: Range | null): number | null {
  const inside = trained.filter(({ step }) => shown === null || isWithin(step, shown));
  const ms = inside.reduce((sum, row) => sum + row.ms, 0);
  return ms > 0 ? inside.reduce((sum, row) => sum + row.tokens, 0) / (ms / 1000) : null;
}
