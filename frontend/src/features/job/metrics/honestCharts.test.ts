// Compares the charts of a job with arithmetic on the rows behind them.

import { expect, it } from "vitest";
import type { RewardRow } from "../../../live/rows";
import { numberAt } from "../../../values/columns";
import { chartsOf, metricsOf, overTime, rewardChart } from "./catalogue";

function rewardRow(batch: number, rewards: readonly number[], at: number | null = batch * 1000): RewardRow {
  const mean = rewards.reduce((sum, one) => sum + one, 0) / rewards.length;
  const sorted = [...rewards].sort((a, b) => a - b);
  const [low, high] = [numberAt(sorted, 0), numberAt(sorted, sorted.length - 1)];
  return { batch, mean, low, high, num_groups: rewards.length, tokens: 12, turns: 2, at };
}

it("never draws a band beyond the rewards of an update", () => {
  const rewards = [
    [0, 0, 0, 1],
    [1, 1, 1, 0.2],
    [1, 1, 1, 1],
  ];
  const [line] = rewardChart(rewards.map((own, i) => rewardRow(i + 1, own))).lines;
  rewards.forEach((own, i) => {
    expect(line?.high?.[i]).toBeLessThanOrEqual(Math.max(...own));
    expect(line?.low?.[i]).toBeGreaterThanOrEqual(Math.min(...own));
  });
});

it("divides tokens by wall time when updates come in bursts", () => {
  // Thirty times five updates within 200 ms and nothing for the rest of 10 s: 5 × 2,000 tokens every 10 s.
  const rows = Array.from({ length: 150 }, (_, i) =>
    rewardRow(i + 1, [1, 0], 1_000_000 + Math.floor(i / 5) * 10_000 + (i % 5) * 50),
  );
  const step = rows.map((row) => row.batch);
  const metrics = metricsOf({ "train/num_trained_tokens": { step, value: step.map(() => 2000) } }, new Map());
  const speed = chartsOf(metrics, rows).find(({ title }) => title === "Trained tokens per second")?.data;
  const drawn = speed?.lines[0]?.values.filter((value) => typeof value === "number") ?? [];
  const steady = drawn.slice(20);
  expect(steady.length).toBeGreaterThan(100);
  expect(Math.max(...steady)).toBeLessThan(2000);
  expect(Math.min(...steady)).toBeGreaterThan(500);
});

it("gives the rate over the updates in the range, on either axis", () => {
  const at = [0, 2000, 3000, 10_000, 20_000];
  const rows = at.map((ms, i) => rewardRow(i + 1, [1, 0], 1_000_000 + ms));
  const tokens = { step: [1, 2, 3, 4, 5], value: [900, 100, 200, 300, 400] };
  const charts = chartsOf(metricsOf({ "train/num_trained_tokens": tokens }, new Map()), rows);
  const speed = charts.find(({ title }) => title === "Trained tokens per second")?.data;
  const summary = speed?.lines[0]?.summary;
  // The time of the first update is unknown.
  expect(summary?.(null)).toBeCloseTo((100 + 200 + 300 + 400) / 20);
  expect(summary?.([3, 4])).toBeCloseTo((200 + 300) / 8);
  const overClock = speed ? overTime(speed, rows).lines[0]?.summary : undefined;
  expect(overClock?.([1001, 1011])).toBeCloseTo((100 + 200 + 300) / 10);
  expect(overClock?.([2001, 2011])).toBeNull();
});
