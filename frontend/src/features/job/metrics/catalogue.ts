// The charts of a job: the curated ones that have data, then every metric that none of those shows. Pure.
// A metric without points draws no line, and a chart without lines is not shown.

import type { XKind } from "../../../charts/lines/axis";
import {
  aligned,
  type ChartData,
  isWithin,
  overX,
  type Points,
  type Range,
  withNews,
} from "../../../charts/lines/series";
import type { MetricRow, RewardRow } from "../../../live/rows";
import type { Table } from "../../../live/tables";
import { throughput } from "./throughput";

export interface Chart {
  title: string;
  note: string;
  data: ChartData;
}

export type Metrics = ReadonlyMap<string, Points>;

interface Recipe {
  title: string;
  note: string;
  lines: readonly (readonly [metric: string, label: string])[];
  /** The chart is shown only if this metric has points. */
  needs?: string;
}

const RECIPES: readonly Recipe[] = [
  {
    title: "Length at failure",
    note: "sampled tokens, beside those of sessions with an outcome",
    lines: [
      ["rollout/failed_length_mean", "failed attempts"],
      ["rollout/length_mean", "with an outcome"],
    ],
    needs: "rollout/failed_length_mean",
  },
  {
    title: "Staleness",
    note: "versions between sampling and training",
    lines: [
      ["train/staleness_mean", "mean"],
      ["train/staleness_max", "max"],
    ],
  },
  { title: "Entropy", note: "nats per token", lines: [["train/entropy", "mean"]] },
  {
    title: "KL divergence",
    note: "nats per token",
    lines: [
      ["train/kl_behaviour", "KL(behaviour‖π)"],
      ["train/kl_reference", "KL to the initial model"],
      ["train/kl_start", "KL(start of the batch‖π)"],
    ],
  },
  { title: "Gradient norm", note: "before clipping", lines: [["train/grad_norm", "norm"]] },
  { title: "Loss", note: "", lines: [["train/loss", "loss"]] },
  {
    title: "Importance ratio",
    note: "new policy relative to the sampler",
    lines: [
      ["train/ratio_mean", "mean"],
      ["train/ratio_max", "max"],
    ],
  },
  {
    title: "Clipped tokens",
    note: "fraction of tokens at a clip bound",
    lines: [
      ["train/clip_fraction_low", "lower bound"],
      ["train/clip_fraction_high", "upper bound"],
      ["train/clip_fraction_last", "any bound, last step of the batch"],
    ],
  },
  {
    title: "Critic",
    note: "rewards that are still to come, per token",
    lines: [
      ["train/value_mean", "value"],
      ["train/return_mean", "target"],
    ],
  },
  { title: "Critic's explained variance", note: "", lines: [["train/explained_variance", "share"]] },
  {
    title: "Step time",
    note: "seconds",
    lines: [
      ["train/forward_s", "forward"],
      ["train/backward_s", "backward"],
      ["train/optimizer_s", "optimizer"],
      ["train/publish_s", "publish"],
      ["train/lease_wait_s", "batch wait"],
    ],
  },
  {
    title: "Trainer–sampler logprob mismatch",
    note: "logprob difference",
    lines: [
      ["train/mismatch_mean", "mean"],
      ["train/mismatch_max", "max"],
    ],
  },
];
// Shown by charts that are built elsewhere.
const SHOWN_ELSEWHERE = ["reward/mean", "reward/std", "train/num_trained_tokens", "eval/reward_mean"];
const REWARD_LINE = "mean over groups";
const PASS_AT = /^eval\/pass_at_(\d+)$/;

/** Metrics read over REST, plus the points received over the socket since. */
export function metricsOf(read: Record<string, Points> | undefined, news: Table<MetricRow>): Metrics {
  const fresh = new Map<string, MetricRow[]>();
  for (const row of news.values()) fresh.set(row.name, [...(fresh.get(row.name) ?? []), row]);
  const names = new Set([...Object.keys(read ?? {}), ...fresh.keys()]);
  return new Map([...names].map((name) => [name, withNews(read?.[name], fresh.get(name) ?? [])]));
}

export function rewardsOf(table: Table<RewardRow>): RewardRow[] {
  return [...table.values()].sort((a, b) => a.batch - b.batch);
}

/**
 * The mean reward of the groups, drawn over a band from their 10th to 90th percentile. Updates older than the rows sent
 * over the socket have only the mean.
 */
export function rewardChart(rewards: readonly RewardRow[], metrics: Metrics = new Map(), width = 1): ChartData {
  const step = rewards.map((row) => row.batch);
  const first = step[0] ?? Number.POSITIVE_INFINITY;
  const { x, lines } = aligned([
    { label: REWARD_LINE, points: { step, value: rewards.map((row) => row.mean) } },
    { label: "low", points: { step, value: rewards.map((row) => row.low) } },
    { label: "high", points: { step, value: rewards.map((row) => row.high) } },
  ]);
  const [mean, low, high] = lines.map((line) => line.values);
  const older = aligned([{ label: REWARD_LINE, points: before(metrics.get("reward/mean"), first) }], width);
  const none = older.x.map(() => null);
  return {
    x: [...older.x, ...x],
    lines: [
      {
        label: REWARD_LINE,
        values: [...(older.lines[0]?.values ?? []), ...(mean ?? [])],
        low: [...none, ...(low ?? [])],
        high: [...none, ...(high ?? [])],
      },
    ],
  };
}

/** The rows of a metric that begin before a step. The last one is cut off at that step. */
function before(points: Points | undefined, first: number): Points {
  const { step = [], first_step = step, value = [], mean = value } = points ?? {};
  const num = first_step.filter((one) => one < first).length;
  return { step: step.slice(0, num).map((one) => Math.min(one, first - 1)), value: mean.slice(0, num) };
}

export function lossChart(metrics: Metrics, width = 1): ChartData {
  const points = metrics.get("train/loss");
  return aligned(points ? [{ label: "loss", points }] : [], width);
}

/** Results on held-out tasks by evaluated version: pass@k for each k, and the mean reward. */
export function evaluationChart(metrics: Metrics, width = 1): ChartData {
  const passing = [...metrics]
    .flatMap(([name, points]) => {
      const k = PASS_AT.exec(name)?.[1];
      return k === undefined ? [] : [{ k: Number(k), label: `pass@${k}`, points }];
    })
    .sort((a, b) => a.k - b.k);
  const reward = metrics.get("eval/reward_mean");
  return aligned([...passing, ...(reward ? [{ label: "mean reward", points: reward }] : [])], width);
}

/** Curated charts in their order, without those that have no points. */
export function chartsOf(metrics: Metrics, rewards: readonly RewardRow[], width = 1): Chart[] {
  const made = recipesOf(metrics).map(({ title, note, lines }) => {
    const known = lines.flatMap(([name, label]) => {
      const points = metrics.get(name);
      return points && points.step.length > 0 ? [{ label, points }] : [];
    });
    return { title, note, data: aligned(known, width) };
  });
  const speed = throughput(metrics.get("train/num_trained_tokens"), rewards, width);
  const charts = [
    { title: "Trained tokens per second", note: "tokens divided by wall time", data: speed },
    { title: "Trajectory length", note: "mean per session", data: lengths(rewards) },
    ...made,
  ];
  return charts.filter(({ data }) => data.x.length > 0);
}

function recipesOf(metrics: Metrics): readonly Recipe[] {
  return RECIPES.filter(({ needs }) => needs === undefined || (metrics.get(needs)?.step.length ?? 0) > 0);
}

/** Every metric that no curated chart shows, by name. */
export function otherCharts(metrics: Metrics, width = 1): Chart[] {
  const shown = new Set([
    ...SHOWN_ELSEWHERE,
    ...recipesOf(metrics).flatMap(({ lines }) => lines.map(([name]) => name)),
  ]);
  return [...metrics]
    .filter(([name, points]) => !shown.has(name) && !PASS_AT.test(name) && points.step.length > 0)
    .sort(([a], [b]) => a.localeCompare(b))
    .map(([name, points]) => ({
      title: name,
      note: "",
      data: aligned([{ label: name.split("/").at(-1) ?? name, points }], width),
    }));
}

/** The chart over the publication times of its updates, in seconds since the epoch. */
export function overTime(data: ChartData, rewards: readonly RewardRow[]): ChartData {
  return overX(data, new Map(rewards.flatMap((row) => (row.at === null ? [] : [[row.batch, row.at / 1000]]))));
}

/** The updates that a range of the axis covers. On a time axis, those published within it. */
export function stepsShown(range: Range | null, xKind: XKind, rewards: readonly RewardRow[]): Range | null {
  if (range === null || xKind === "update") return range;
  const inside = rewards.filter(({ at }) => at !== null && isWithin(at / 1000, range));
  const [first, last] = [inside[0], inside.at(-1)];
  return first && last ? [first.batch, last.batch] : null;
}

function lengths(rewards: readonly RewardRow[]): ChartData {
  const known = rewards.flatMap(({ batch, tokens, turns }) => (tokens === null ? [] : [{ batch, tokens, turns }]));
  const step = known.map((row) => row.batch);
  const numbered = known.flatMap(({ batch, turns }) => (turns === null ? [] : [{ batch, turns }]));
  return aligned(
    known.length
      ? [
          { label: "sampled tokens", points: { step, value: known.map((row) => row.tokens) } },
          {
            label: "turns",
            points: { step: numbered.map((row) => row.batch), value: numbered.map((row) => row.turns) },
          },
        ]
      : [],
  );
}

/** The total of a metric that counts something, such as tokens. */
export function sumOf(points: Points | undefined): number {
  const { value = [], count, mean } = points ?? {};
  return value.reduce((sum, one, i) => sum + (count && mean ? (count[i] ?? 0) * (mean[i] ?? 0) : one), 0);
}
