// What charts draw: columns over one x axis. Pure. A null is a gap: nothing is known there, and nothing is drawn.

export type Column = readonly (number | null)[];

export interface Line {
  label: string;
  values: Column;
  /** Drawn as a band behind the line. */
  low?: Column;
  high?: Column;
}

export interface ChartData {
  x: readonly number[];
  lines: readonly Line[];
}

/** Points of one metric, by ascending step. */
export interface Points {
  step: readonly number[];
  value: readonly number[];
}

export const EMPTY: ChartData = { x: [], lines: [] };

/** Put metrics on the union of their steps; where one has no point it has a gap. */
export function aligned(metrics: readonly { label: string; points: Points }[]): ChartData {
  const x = [...new Set(metrics.flatMap((metric) => metric.points.step))].sort((a, b) => a - b);
  const place = new Map(x.map((step, index) => [step, index]));
  const lines = metrics.map(({ label, points }) => {
    const values: (number | null)[] = new Array(x.length).fill(null);
    points.step.forEach((step, i) => {
      values[place.get(step) as number] = points.value[i] ?? null;
    });
    return { label, values };
  });
  return { x, lines };
}

/** Points with news appended; a step that is known already is replaced. */
export function withNews(points: Points | undefined, news: readonly { step: number; value: number }[]): Points {
  const byStep = new Map(points?.step.map((step, i) => [step, points.value[i] as number]));
  for (const { step, value } of news) byStep.set(step, value);
  const step = [...byStep.keys()].sort((a, b) => a - b);
  return { step, value: step.map((one) => byStep.get(one) as number) };
}

/** The same chart over other x values; those without one are left out. */
export function overX(data: ChartData, xOf: ReadonlyMap<number, number>): ChartData {
  const kept = data.x.flatMap((x, index) => (xOf.has(x) ? [index] : []));
  const pick = (column: Column) => kept.map((index) => column[index] ?? null);
  return {
    x: kept.map((index) => xOf.get(data.x[index] as number) as number),
    lines: data.lines.map(({ label, values, low, high }) => ({
      label,
      values: pick(values),
      ...(low && high ? { low: pick(low), high: pick(high) } : {}),
    })),
  };
}

/** Mean over a sliding window of `size` points, gaps left out; gaps stay gaps. */
export function smoothed(values: Column, size: number): Column {
  return values.map((value, i) => {
    if (value === null) return null;
    const window = values.slice(Math.max(0, i - size + 1), i + 1).filter((one) => one !== null);
    return window.reduce((sum, one) => sum + one, 0) / window.length;
  });
}

export function lastKnown(values: Column): number | null {
  return values.findLast((value) => value !== null) ?? null;
}

/** For readers of screens: what the chart shows, in a sentence. */
export function described(title: string, data: ChartData, say: (value: number) => string): string {
  const said = data.lines.flatMap(({ label, values }) => {
    const known = values.filter((value) => value !== null);
    const first = known[0];
    const last = known.at(-1);
    if (first === undefined || last === undefined) return [];
    return [
      `${label} from ${say(first)} to ${say(last)}, between ${say(Math.min(...known))} and ${say(Math.max(...known))}`,
    ];
  });
  return `${title}: ${said.length ? said.join("; ") : "no values yet"}`;
}
