import { expect, it } from "vitest";
import type { RewardRow } from "../../live/rows";
import { chartsOf, evaluationChart, metricsOf, otherCharts, overTime, rewardChart } from "./catalogue";

const reward = (batch: number, at: number | null): RewardRow => ({
  batch,
  mean: 0.5,
  spread: 0.1,
  num_groups: 4,
  tokens: 12,
  turns: 2,
  at,
});
const points = { step: [1, 2], value: [3, 4] };

it("shows no chart of a metric without points", () => {
  const titles = chartsOf(metricsOf({ "train/entropy": points }, new Map()), []).map((chart) => chart.title);
  expect(titles).toEqual(["Entropy"]);
});

it("shows every metric somewhere", () => {
  const metrics = metricsOf({ "train/entropy": points, "eval/score": points }, new Map());
  expect(otherCharts(metrics).map((chart) => chart.title)).toEqual(["eval/score"]);
});

it("draws pass@k by k, with the mean reward, and nowhere else", () => {
  const read = { "eval/pass_at_16": points, "eval/pass_at_4": points, "eval/reward_mean": points };
  const metrics = metricsOf(read, new Map());
  expect(evaluationChart(metrics).lines.map((line) => line.label)).toEqual(["pass@4", "pass@16", "mean reward"]);
  expect(otherCharts(metrics)).toEqual([]);
  expect(evaluationChart(metricsOf({}, new Map())).x).toEqual([]);
});

it("continues what was read with what came since", () => {
  const news = new Map([["train/loss@3", { name: "train/loss", step: 3, value: 9 }]]);
  expect(metricsOf({ "train/loss": points }, news).get("train/loss")).toEqual({ step: [1, 2, 3], value: [3, 4, 9] });
});

it("counts trained tokens over the time between publications", () => {
  const metrics = metricsOf({ "train/num_trained_tokens": { step: [1, 2], value: [100, 300] } }, new Map());
  const [chart] = chartsOf(metrics, [reward(1, 1000), reward(2, 3000)]);
  expect(chart?.data).toEqual({ x: [2], lines: [{ label: "tokens/s", values: [150] }] });
});

it("puts updates on the clock, without those whose moment is not known", () => {
  const data = rewardChart([reward(1, 1000), reward(2, null), reward(3, 5000)]);
  expect(overTime(data, [reward(1, 1000), reward(2, null), reward(3, 5000)]).x).toEqual([1, 5]);
});
