// Which charts a job has: the curated ones that its metrics can fill, then every metric that none of those shows.
// Pure. A metric without points makes no line; a chart without lines is not shown.
import { aligned, type ChartData, isWithin, overX, type Points, type Range, withNews } from "../../charts/series";
import type { XKind } from "../../charts/TimeSeries";
import type { MetricRow, RewardRow } from "../../live/rows";
import type { Table } from "../../live/tables";
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
    title: "Trainer–sampler logprob mismatch",
    note: "difference of logprobs",
    lines: [
      ["train/mismatch_mean", "mean"],
      ["train/mismatch_max", "largest"],
    ],
  },
];
// Shown by charts that are made otherwise.
const SHOWN_ELSEWHERE = ["reward/mean", "reward/std", "train/num_trained_tokens", "eval/reward_mean"];
const REWARD_LINE = "mean of the groups";
const PASS_AT = /^eval\/pass_at_(\d+)$/;

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

/**
 * The mean reward of the groups before a band from the 10th to the 90th percentile of them. Of updates older than the
 * rows that are told, the metric has the mean alone.
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

/** The rows of a metric that begin before a step; the last of them ends there. */
function before(points: Points | undefined, first: number): Points {
  const { step = [], first_step = step, value = [], mean = value } = points ?? {};
  const num = first_step.filter((one) => one < first).length;
  return { step: step.slice(0, num).map((one) => Math.min(one, first - 1)), value: mean.slice(0, num) };
}

export function lossChart(metrics: Metrics, width = 1): ChartData {
  const points = metrics.get("train/loss");
  return aligned(points ? [{ label: "loss", points }] : [], width);
}

/** What held-out tasks say of the versions that were measured: pass@k by k, and the mean reward. */
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

/** Curated charts in their order, those without a point left out. */
export function chartsOf(metrics: Metrics, rewards: readonly RewardRow[], width = 1): Chart[] {
  const made = RECIPES.map(({ title, note, lines }) => {
    const known = lines.flatMap(([name, label]) => {
      const points = metrics.get(name);
      return points && points.step.length > 0 ? [{ label, points }] : [];
    });
    return { title, note, data: aligned(known, width) };
  });
  const speed = throughput(metrics.get("train/num_trained_tokens"), rewards, width);
  const charts = [
    { title: "Trained tokens per second", note: "tokens over wall time", data: speed },
    { title: "Trajectory length", note: "per episode", data: lengths(rewards) },
    ...made,
  ];
  return charts.filter(({ data }) => data.x.length > 0);
}

/** Every metric that no curated chart shows, by name. */
export function otherCharts(metrics: Metrics, width = 1): Chart[] {
  const shown = new Set([...SHOWN_ELSEWHERE, ...RECIPES.flatMap(({ lines }) => lines.map(([name]) => name))]);
  return [...metrics]
    .filter(([name, points]) => !shown.has(name) && !PASS_AT.test(name) && points.step.length > 0)
    .sort(([a], [b]) => a.localeCompare(b))
    .map(([name, points]) => ({
      title: name,
      note: "",
      data: aligned([{ label: name.split("/").at(-1) ?? name, points }], width),
    }));
}

/** The chart over the moments at which its updates were published, in seconds since the epoch. */
export function overTime(data: ChartData, rewards: readonly RewardRow[]): ChartData {
  return overX(data, new Map(rewards.flatMap((row) => (row.at === null ? [] : [[row.batch, row.at / 1000]]))));
}

/** The updates that a range of the axis covers: of times, those that were published within it. */
export function stepsShown(range: Range | null, xKind: XKind, rewards: readonly RewardRow[]): Range | null {
  if (range === null || xKind === "update") return range;
  const inside = rewards.filter(({ at }) => at !== null && isWithin(at / 1000, range));
  const [first, last] = [inside[0], inside.at(-1)];
  return first && last ? [first.batch, last.batch] : null;
}

function lengths(rewards: readonly RewardRow[]): ChartData {
  const known = rewards.flatMap(({ batch, tokens, turns }) => (tokens === null ? [] : [{ batch, tokens, turns }]));
  const step = known.map((row) => row.batch);
  const numbered = known.filter((row) => row.turns !== null);
  return aligned(
    known.length
      ? [
          { label: "sampled tokens", points: { step, value: known.map((row) => row.tokens) } },
          {
            label: "turns",
            points: { step: numbered.map((row) => row.batch), value: numbered.map((row) => row.turns as number) },
          },
        ]
      : [],
  );
}

/** Of a metric that is counted, such as tokens: all of it together. */
export function sumOf(points: Points | undefined): number {
  const { value = [], count, mean } = points ?? {};
  return value.reduce((sum, one, i) => sum + (count && mean ? (count[i] ?? 0) * (mean[i] ?? 0) : one), 0);
}
