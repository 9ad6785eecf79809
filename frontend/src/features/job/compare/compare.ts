// Compares two jobs: spec differences, a summary, and one chart per metric with both jobs in it. Pure.

import { aligned, type ChartData } from "../../../charts/lines/series";
import { ranMs } from "../../../live/ran";
import type { JobRow } from "../../../live/rows";
import { decimal, figure, integer, NONE, plural } from "../../../ui/words/format";
import { numberAt } from "../../../values/columns";
import { type Metrics, sumOf } from "../metrics/catalogue";

export interface Side {
  label: string;
  job: JobRow;
  metrics: Metrics;
}

export interface Row {
  what: string;
  here: string;
  there: string;
}

export interface Pair {
  title: string;
  note: string;
  data: ChartData;
}

const CURATED: readonly (readonly [metric: string, title: string, note: string])[] = [
  ["reward/mean", "Reward", "mean over groups, by update"],
  ["eval/pass_at_1", "pass@1 on held-out tasks", "by evaluated version"],
  ["train/loss", "Loss", ""],
  ["train/entropy", "Entropy", "nats per token"],
  ["train/kl_reference", "KL to the initial model", "nats per token"],
  ["train/kl_behaviour", "KL(behaviour‖π)", "nats per token"],
  ["train/grad_norm", "Gradient norm", "before clipping"],
  ["train/staleness_mean", "Staleness", "versions between sampling and training"],
  ["train/num_trained_tokens", "Trained tokens", "per update"],
  ["train/step_s", "Step time", "seconds"],
];
const NO_POINTS = { step: [], value: [] };
const NUM_LAST = 5;
const MINUTE_MS = 60_000;

/** The names of both jobs. Equal names are distinguished by the ends of their IDs. */
export function labelsOf(here: JobRow, there: JobRow): [string, string] {
  if (here.name !== there.name) return [here.name, there.name];
  const named = ({ name, id }: JobRow) => `${name} (${id.slice(-6)})`;
  return [named(here), named(there)];
}

/** Fields of the resolved specs whose values differ, by path. The name is left out. */
export function specDifferences(here: unknown, there: unknown): Row[] {
  const [mine, theirs] = [flat(here), flat(there)];
  return [...new Set([...mine.keys(), ...theirs.keys()])]
    .filter((path) => path !== "name" && mine.get(path) !== theirs.get(path))
    .sort()
    .map((what) => ({ what, here: mine.get(what) ?? NONE, there: theirs.get(what) ?? NONE }));
}

export function figuresOf(here: Side, there: Side, now: number): Row[] {
  const row = (what: string, wordingOf: (side: Side) => string): Row => ({
    what,
    here: wordingOf(here),
    there: wordingOf(there),
  });
  return [
    row("Updates", ({ job }) => `${integer(job.num_updates_done)} of ${integer(job.num_updates)}`),
    row("Mean reward of the newest updates", ({ metrics }) => lastMeanText(metrics)),
    row("pass@1 of the best version", bestText),
    row("Updates per minute, including pauses", ({ job }) => figure(updatesPerMinute(job, now))),
    row("Trained tokens", ({ metrics }) => trainedText(metrics)),
  ];
}

/**
 * The curated charts first, then every other metric that both jobs have, by name. Each chart has a line for each job, even
 * if one has no value, because a job has one colour on the whole page.
 */
export function pairsOf(here: Side, there: Side, width = 1): { first: Pair[]; others: Pair[] } {
  const both = (name: string) =>
    aligned(
      [here, there].map(({ label, metrics }) => ({ label, points: metrics.get(name) ?? NO_POINTS })),
      width,
    );
  const first = CURATED.map(([name, title, note]) => ({ title, note, data: both(name) }));
  const curated = new Set(CURATED.map(([name]) => name));
  const others = [...here.metrics.keys()]
    .filter((name) => there.metrics.has(name) && !curated.has(name))
    .sort()
    .map((name) => ({ title: name, note: "", data: both(name) }));
  const isDrawn = ({ data }: Pair) => data.x.length > 0;
  return { first: first.filter(isDrawn), others: others.filter(isDrawn) };
}

function flat(value: unknown, path = ""): Map<string, string> {
  if (typeof value !== "object" || value === null || Array.isArray(value))
    return new Map([[path, typeof value === "string" ? value : JSON.stringify(value ?? null)]]);
  const entries = Object.entries(value).flatMap(([key, inner]) => [...flat(inner, path ? `${path}.${key}` : key)]);
  return new Map(entries);
}

/** The mean over the newest rows that cover at least NUM_LAST updates, and their number of updates. */
function lastMeanText(metrics: Metrics): string {
  const { value = [], mean = value, count = value.map(() => 1) } = metrics.get("reward/mean") ?? {};
  let [total, num] = [0, 0];
  for (let i = value.length - 1; i >= 0 && num < NUM_LAST; i--) {
    total += numberAt(mean, i) * numberAt(count, i);
    num += numberAt(count, i);
  }
  return num === 0 ? NONE : `${decimal(total / num)} over ${plural(num, "update")}`;
}

function trainedText(metrics: Metrics): string {
  const points = metrics.get("train/num_trained_tokens");
  return points ? integer(sumOf(points)) : NONE;
}

function bestText({ job, metrics }: Side): string {
  const points = metrics.get("eval/pass_at_1");
  const index = points?.step.indexOf(job.best_version ?? -1) ?? -1;
  return index < 0 ? NONE : `${decimal(points?.value[index])} in version ${integer(job.best_version)}`;
}

function updatesPerMinute(job: JobRow, now: number): number | undefined {
  const ran = ranMs(job, now);
  return ran === null || job.num_updates_done === 0 ? undefined : job.num_updates_done / (ran / MINUTE_MS);
}
