// The data of charts: columns over one x axis. Pure. A line joins two values if only `undefined` lies between them. A
// null is a gap: nothing is known there, and no line crosses it.
import { numberAt } from "../../values/columns";

export type Column = readonly (number | null | undefined)[];
export type Range = readonly [from: number, to: number];

export interface Line {
  label: string;
  values: Column;
  /** Drawn as a band behind the line. */
  low?: Column;
  high?: Column;
  /** The legend's value while the pointer is elsewhere. Defaults to the last value. */
  summary?: (shown: Range | null) => number | null;
}

export interface ChartData {
  x: readonly number[];
  lines: readonly Line[];
}

/**
 * Rows of one metric by ascending step. A row is a point, or a bucket of several points with its last step and value,
 * and the smallest, the largest and the mean of its values.
 */
export interface Points {
  step: readonly number[];
  value: readonly number[];
  first_step?: readonly number[];
  count?: readonly number[];
  min?: readonly number[];
  max?: readonly number[];
  mean?: readonly number[];
}

export const EMPTY: ChartData = { x: [], lines: [] };

/**
 * Puts metrics on the union of their steps, gathered in buckets of `width`. A metric has a gap where its own spacing
 * suggests a point and there is none. A bucket of several points is drawn as its mean over a band from smallest
 * to largest.
 */
export function aligned(metrics: readonly { label: string; points: Points }[], width = 1): ChartData {
  const last = Math.max(...metrics.map(({ points }) => points.step.at(-1) ?? 0));
  const bucketed = metrics.map(({ label, points: all }) => {
    const points = gathered(all, width);
    return { label, points, indices: points.step.map((step) => bucketOf(step, width)) };
  });
  const missing = new Map(bucketed.map(({ label, indices }) => [label, missingIn(indices)]));
  const buckets = [...new Set([...bucketed.flatMap(({ indices }) => indices), ...[...missing.values()].flat()])];
  buckets.sort((a, b) => a - b);
  const lines = bucketed.map(({ label, points, indices }) => {
    const column = (values: readonly number[]) => {
      const known = new Map<number, number | null>(missing.get(label)?.map((bucket) => [bucket, null]));
      indices.forEach((bucket, i) => {
        known.set(bucket, values[i] ?? null);
      });
      return bounded(buckets.map((bucket) => known.get(bucket)));
    };
    const { min, max } = points;
    const isGathered = points.count?.some((count) => count > 1) ?? false;
    return {
      label,
      values: column(isGathered && points.mean ? points.mean : points.value),
      ...(isGathered && min && max ? { low: column(min), high: column(max) } : {}),
      ...(isGathered ? { summary: newestOf(points) } : {}),
    };
  });
  return { x: buckets.map((bucket) => Math.min((bucket + 1) * width - 1, last)), lines };
}

function bucketOf(step: number, width: number): number {
  return Math.floor(step / width);
}

/** The buckets of gaps, one per run of missing points. A metric that skips updates may be late by twice its spacing. */
function missingIn(indices: readonly number[]): number[] {
  const distances = indices.slice(1).map((index, i) => index - numberAt(indices, i));
  const spacing = [...distances].sort((a, b) => a - b)[(distances.length - 1) >> 1] ?? 1;
  const reach = spacing <= 1 ? 1 : 2 * spacing;
  return distances.flatMap((distance, i) => (distance > reach ? [numberAt(indices, i) + 1] : []));
}

/** Removes gaps before a line's first value and after its last one. */
function bounded(filled: (number | null | undefined)[]): Column {
  const isKnown = (value: number | null | undefined) => typeof value === "number";
  const first = filled.findIndex(isKnown);
  const last = filled.findLastIndex(isKnown);
  return filled.map((value, i) => (first < 0 || i < first || i > last ? null : value));
}

function newestOf(points: Points): (shown: Range | null) => number | null {
  return (shown) => {
    const index = shown === null ? -1 : points.step.findLastIndex((step) => step <= shown[1]);
    return points.value.at(index) ?? null;
  };
}

/** Appends news to points. News replaces a point of the same step, and is ignored if a bucket already contains it. */
export function withNews(points: Points | undefined, news: readonly { step: number; value: number }[]): Points {
  if (!points?.count?.some((count) => count > 1)) return replaced(points, news);
  const last = points.step.at(-1) ?? Number.NEGATIVE_INFINITY;
  const fresh = news.filter(({ step }) => step > last).sort((a, b) => a.step - b.step);
  const single = fresh.map(({ step, value }) => ({
    first: step,
    step,
    value,
    count: 1,
    min: value,
    max: value,
    mean: value,
  }));
  return pointsOf([...points.step.map((_, i) => bucketAt(points, i)), ...single]);
}

/** Merges the rows of each bucket of `width` steps. */
function gathered(points: Points, width: number): Points {
  if (width === 1) return points;
  const rows: Bucket[] = [];
  points.step.forEach((_, i) => {
    const row = bucketAt(points, i);
    const newest = rows.at(-1);
    if (newest && bucketOf(newest.step, width) === bucketOf(row.step, width))
      rows[rows.length - 1] = merged(newest, row);
    else rows.push(row);
  });
  return pointsOf(rows);
}

function pointsOf(rows: readonly Bucket[]): Points {
  return {
    first_step: rows.map((row) => row.first),
    step: rows.map((row) => row.step),
    value: rows.map((row) => row.value),
    count: rows.map((row) => row.count),
    min: rows.map((row) => row.min),
    max: rows.map((row) => row.max),
    mean: rows.map((row) => row.mean),
  };
}

interface Bucket {
  first: number;
  step: number;
  value: number;
  count: number;
  min: number;
  max: number;
  mean: number;
}

function bucketAt(points: Points, i: number): Bucket {
  const [step, value] = [numberAt(points.step, i), numberAt(points.value, i)];
  return {
    first: points.first_step?.[i] ?? step,
    step,
    value,
    count: points.count?.[i] ?? 1,
    min: points.min?.[i] ?? value,
    max: points.max?.[i] ?? value,
    mean: points.mean?.[i] ?? value,
  };
}

function merged(older: Bucket, newer: Bucket): Bucket {
  const count = older.count + newer.count;
  return {
    first: older.first,
    step: newer.step,
    value: newer.value,
    count,
    min: Math.min(older.min, newer.min),
    max: Math.max(older.max, newer.max),
    mean: (older.mean * older.count + newer.mean * newer.count) / count,
  };
}

function replaced(points: Points | undefined, news: readonly { step: number; value: number }[]): Points {
  const byStep = new Map(points?.step.map((step, i) => [step, numberAt(points.value, i)]));
  for (const { step, value } of news) byStep.set(step, value);
  const rows = [...byStep].sort(([a], [b]) => a - b);
  return { step: rows.map(([step]) => step), value: rows.map(([, value]) => value) };
}

/**
 * The same chart over other x values. Rows without one are left out; a line that had a value or gap there gets a gap.
 */
export function overX(data: ChartData, xOf: ReadonlyMap<number, number>): ChartData {
  const x: number[] = [];
  const rows: Row[] = [];
  let lost: number[] = [];
  data.x.forEach((step, index) => {
    const at = xOf.get(step);
    if (at === undefined) {
      lost.push(index);
      return;
    }
    const before = x.at(-1);
    if (lost.length > 0 && before !== undefined) {
      x.push((before + at) / 2);
      rows.push({ index: null, lost });
    }
    lost = [];
    x.push(at);
    rows.push({ index, lost: [] });
  });
  const pick = (column: Column) =>
    rows.map(({ index, lost }) => (index === null ? gapIn(column, lost) : column[index]));
  return {
    x,
    lines: data.lines.map(({ label, values, low, high, summary }) => ({
      label,
      values: pick(values),
      ...(low && high ? { low: pick(low), high: pick(high) } : {}),
      ...(summary
        ? { summary: (shown) => (shown === null ? summary(null) : summaryWithin(summary, stepsIn(xOf, shown))) }
        : {}),
    })),
  };
}

function stepsIn(xOf: ReadonlyMap<number, number>, shown: Range): number[] {
  return [...xOf].flatMap(([step, x]) => (isWithin(x, shown) ? [step] : [])).sort((a, b) => a - b);
}

function summaryWithin(summary: NonNullable<Line["summary"]>, steps: readonly number[]): number | null {
  const [first, last] = [steps[0], steps.at(-1)];
  return first === undefined || last === undefined ? null : summary([first, last]);
}

interface Row {
  /** Null for a row that stands for the lost ones. */
  index: number | null;
  lost: readonly number[];
}

/** A gap if the column has anything in the lost rows, so that no line is drawn across it. */
function gapIn(column: Column, lost: readonly number[]): null | undefined {
  return lost.every((index) => column[index] === undefined) ? undefined : null;
}

/** The newest known value. */
export function lastKnown(values: Column): number | null {
  return values.findLast((value) => typeof value === "number") ?? null;
}

/** The legend's value of a line while the pointer is elsewhere. */
export function saidOf(line: Line, x: readonly number[], shown: Range | null): number | null {
  if (line.summary) return line.summary(shown);
  return lastKnown(shown === null ? line.values : line.values.filter((_, i) => isWithin(numberAt(x, i), shown)));
}

export function isWithin(x: number, [from, to]: Range): boolean {
  return x >= from && x <= to;
}

/** The rows of a chart that lie in a range. */
export function within(data: ChartData, range: Range): ChartData {
  const pick = (column: Column) => column.filter((_, i) => isWithin(numberAt(data.x, i), range));
  return {
    x: data.x.filter((x) => isWithin(x, range)),
    lines: data.lines.map((line) => ({ ...line, values: pick(line.values) })),
  };
}

/** Describes the chart in one sentence for screen readers. */
export function described(title: string, data: ChartData, say: (value: number) => string): string {
  const wording = data.lines.flatMap(({ label, values }) => {
    const known = values.filter((value) => typeof value === "number");
    const first = known[0];
    const last = known.at(-1);
    if (first === undefined || last === undefined) return [];
    const [least, most] = known.reduce(
      ([low, high]: Range, one): Range => [Math.min(low, one), Math.max(high, one)],
      [first, first],
    );
    return [`${label} from ${say(first)} to ${say(last)}, between ${say(least)} and ${say(most)}`];
  });
  return `${title}: ${wording.length ? wording.join("; ") : "no values yet"}`;
}
