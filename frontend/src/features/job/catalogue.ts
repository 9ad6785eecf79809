// Which charts a job has: the curated ones that its metrics can fill, then every metric that none of those shows.
// Pure. A metric without points makes no line; a chart without lines is not shown.
import { aligned, type ChartData, overX, type Points, smoothed, withNews } from "../../charts/series";
import type { MetricRow, RewardRow } from "../../live/rows";
import type { Table } from "../../live/tables";

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
}

const RECIPES: readonly Recipe[] = [
  {
    title: "Staleness",
    note: "versions between sampling and training",
    lines: [
      ["train/staleness_mean", "mean"],
      ["train/staleness_max", "largest"],
    ],
  },
  { title: "Entropy", note: "nats per token", lines: [["train/entropy", "mean"]] },
  {
    title: "KL",
    note: "nats per token",
    lines: [
      ["train/kl_behaviour", "to the sampler"],
      ["train/kl_reference", "to the initial model"],
    ],
  },
  { title: "Gradient norm", note: "before clipping", lines: [["train/grad_norm", "norm"]] },
  { title: "Loss", note: "", lines: [["train/loss", "loss"]] },
  {
    title: "Importance ratio",
    note: "new policy over sampler",
    lines: [
      ["train/ratio_mean", "mean"],
      ["train/ratio_max", "largest"],
    ],
  },
  {
    title: "Clipped tokens",
    note: "share",
    lines: [
      ["train/clip_fraction_low", "below"],
      ["train/clip_fraction_high", "above"],
    ],
  },
  {
    title: "Step time",
    note: "seconds",
    lines: [
      ["train/forward_s", "forward"],
      ["train/backward_s", "backward"],
      ["train/optimizer_s", "optimizer"],
      ["train/publish_s", "publish"],
      ["train/lease_wait_s", "wait for a batch"],
    ],
  },
  {
    title: "Trainer against engine",
    note: "difference of logprobs",
    lines: [
      ["train/mismatch_mean", "mean"],
      ["train/mismatch_max", "largest"],
    ],
  },
];
// Shown by charts that are made otherwise.
const SHOWN_ELSEWHERE = ["reward/mean", "reward/std", "train/num_trained_tokens", "eval/reward_mean"];
const PASS_AT = /^eval\/pass_at_(\d+)$/;
const SMOOTHING = 5;

/** Metrics as read over REST, with the points that came over the socket since. */
export function metricsOf(read: Record<string, Points> | undefined, news: Table<MetricRow>): Metrics {
  const fresh = new Map<string, MetricRow[]>();
  for (const row of news.values()) fresh.set(row.name, [...(fresh.get(row.name) ?? []), row]);
  const names = new Set([...Object.keys(read ?? {}), ...fresh.keys()]);
  return new Map([...names].map((name) => [name, withNews(read?.[name], fresh.get(name) ?? [])]));
}

export function rewardsOf(table: Table<RewardRow>): RewardRow[] {
  return [...table.values()].sort((a, b) => a.batch - b.batch);
}

export function rewardChart(rewards: readonly RewardRow[]): ChartData {
  return {
    x: rewards.map((row) => row.batch),
    lines: [
      {
        label: "mean of the groups",
        values: rewards.map((row) => row.mean),
        low: rewards.map((row) => row.mean - row.spread),
        high: rewards.map((row) => row.mean + row.spread),
      },
    ],
  };
}

export function lossChart(metrics: Metrics): ChartData {
  const points = metrics.get("train/loss");
  return aligned(points ? [{ label: "loss", points }] : []);
}

/** What held-out tasks say of the versions that were measured: pass@k by k, and the mean reward. */
export function evaluationChart(metrics: Metrics): ChartData {
  const passing = [...metrics]
    .flatMap(([name, points]) => {
      const k = PASS_AT.exec(name)?.[1];
      return k === undefined ? [] : [{ k: Number(k), label: `pass@${k}`, points }];
    })
    .sort((a, b) => a.k - b.k);
  const reward = metrics.get("eval/reward_mean");
  return aligned([...passing, ...(reward ? [{ label: "mean reward", points: reward }] : [])]);
}

/** Curated charts in their order, those without a point left out. */
export function chartsOf(metrics: Metrics, rewards: readonly RewardRow[]): Chart[] {
  const made = RECIPES.map(({ title, note, lines }) => {
    const known = lines.flatMap(([name, label]) => {
      const points = metrics.get(name);
      return points && points.step.length > 0 ? [{ label, points }] : [];
    });
    return { title, note, data: aligned(known) };
  });
  const charts = [
    { title: "Trained tokens per second", note: `mean of ${SMOOTHING} updates`, data: throughput(metrics, rewards) },
    { title: "Length of episodes", note: "per episode", data: lengths(rewards) },
    ...made,
  ];
  return charts.filter(({ data }) => data.x.length > 0);
}

/** Every metric that no curated chart shows, by name. */
export function otherCharts(metrics: Metrics): Chart[] {
  const shown = new Set([...SHOWN_ELSEWHERE, ...RECIPES.flatMap(({ lines }) => lines.map(([name]) => name))]);
  return [...metrics]
    .filter(([name, points]) => !shown.has(name) && !PASS_AT.test(name) && points.step.length > 0)
    .sort(([a], [b]) => a.localeCompare(b))
    .map(([name, points]) => ({
      title: name,
      note: "",
      data: aligned([{ label: name.split("/").at(-1) ?? name, points }]),
    }));
}

/** The chart over the moments at which its updates were published, in seconds since the epoch. */
export function overTime(data: ChartData, rewards: readonly RewardRow[]): ChartData {
  return overX(data, new Map(rewards.flatMap((row) => (row.at === null ? [] : [[row.batch, row.at / 1000]]))));
}

function throughput(metrics: Metrics, rewards: readonly RewardRow[]): ChartData {
  const tokens = metrics.get("train/num_trained_tokens");
  const byStep = new Map(tokens?.step.map((step, i) => [step, tokens.value[i] as number]));
  const x: number[] = [];
  const values: (number | null)[] = [];
  rewards.forEach((row, i) => {
    const before = rewards[i - 1];
    const count = byStep.get(row.batch);
    if (!before?.at || !row.at || count === undefined || row.at <= before.at) return;
    x.push(row.batch);
    values.push(count / ((row.at - before.at) / 1000));
  });
  return x.length ? { x, lines: [{ label: "tokens/s", values: smoothed(values, SMOOTHING) }] } : { x, lines: [] };
}

function lengths(rewards: readonly RewardRow[]): ChartData {
  const known = rewards.filter((row) => row.tokens !== null);
  return {
    x: known.map((row) => row.batch),
    lines: known.length
      ? [
          { label: "sampled tokens", values: known.map((row) => row.tokens) },
          { label: "turns", values: known.map((row) => row.turns) },
        ]
      : [],
  };
}
