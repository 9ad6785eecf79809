import { expect, it } from "vitest";
import type { RewardRow } from "../../../live/rows";
import {
  chartsOf,
  evaluationChart,
  metricsOf,
  otherCharts,
  overTime,
  rewardChart,
  stepsShown,
  sumOf,
} from "./catalogue";

const reward = (batch: number, at: number | null): RewardRow => ({
  batch,
  mean: 0.5,
  low: 0.4,
  high: 0.6,
  num_groups: 4,
  tokens: 12,
  turns: 2,
  at,
});
const points = { step: [1, 2], value: [3, 4] };

it("shows no chart for a metric without points", () => {
  const titles = chartsOf(metricsOf({ "train/entropy": points }, new Map()), []).map((chart) => chart.title);
  expect(titles).toEqual(["Entropy"]);
});

it("shows every metric somewhere", () => {
  const metrics = metricsOf({ "train/entropy": points, "eval/score": points }, new Map());
  expect(otherCharts(metrics).map((chart) => chart.title)).toEqual(["eval/score"]);
});

it("draws pass@k in order of k with the mean reward, and in no other chart", () => {
  const read = { "eval/pass_at_16": points, "eval/pass_at_4": points, "eval/reward_mean": points };
  const metrics = metricsOf(read, new Map());
  expect(evaluationChart(metrics).lines.map((line) => line.label)).toEqual(["pass@4", "pass@16", "mean reward"]);
  expect(otherCharts(metrics)).toEqual([]);
  expect(evaluationChart(metricsOf({}, new Map())).x).toEqual([]);
});

it("extends the points read over REST with those from the socket", () => {
  const news = new Map([["train/loss@3", { name: "train/loss", step: 3, value: 9 }]]);
  expect(metricsOf({ "train/loss": points }, news).get("train/loss")).toEqual({ step: [1, 2, 3], value: [3, 4, 9] });
});

it("draws updates older than the reward rows from the metric, without a band", () => {
  const metrics = metricsOf({ "reward/mean": { step: [1, 2, 3, 4], value: [0.1, 0.2, 0.3, 0.4] } }, new Map());
  const { x, lines } = rewardChart([reward(3, 1000), reward(4, 2000)], metrics);
  expect(x).toEqual([1, 2, 3, 4]);
  expect(lines[0]?.values).toEqual([0.1, 0.2, 0.5, 0.5]);
  expect(lines[0]?.low).toEqual([null, null, 0.4, 0.4]);
});

it("finds the updates that a range of the axis covers", () => {
  const rows = [reward(1, 10_000), reward(2, null), reward(3, 20_000), reward(4, 30_000)];
  expect(stepsShown([15, 40], "time", rows)).toEqual([3, 4]);
  expect(stepsShown([2, 3], "update", rows)).toEqual([2, 3]);
  expect(stepsShown(null, "time", rows)).toBeNull();
});

it("sums counts, including those in buckets", () => {
  expect(sumOf({ step: [1, 2], value: [100, 300] })).toBe(400);
  expect(sumOf({ step: [4, 8], value: [1, 2], count: [4, 4], mean: [10, 20] })).toBe(120);
  expect(sumOf(undefined)).toBe(0);
});

it("places updates by time, with a gap for one whose time is unknown", () => {
  const data = rewardChart([reward(1, 1000), reward(2, null), reward(3, 5000)]);
  const { x, lines } = overTime(data, [reward(1, 1000), reward(2, null), reward(3, 5000)]);
  expect(x).toEqual([1, 3, 5]);
  expect(lines[0]?.values).toEqual([0.5, null, 0.5]);
});
