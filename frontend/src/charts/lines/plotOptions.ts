// uPlot's options and columns for a chart of lines with bands. Colours are read from the page's style at creation.
import type uPlot from "uplot";
import { figure } from "../../ui/words/format";
import type { XKind } from "./axis";
import type { ChartData, Column, Line, Range } from "./series";

const CURSOR_GROUP = "job";
const BAND_OPACITY = 0.16;
const MAX_POINTS_WITH_DOTS = 60;
const MIN_DRAGGED_PX = 4;

interface Structure {
  lines: readonly Line[];
  xKind: XKind;
  width: number;
  height: number;
  /** Called with the index under the pointer, or null if there is none. */
  showAt: (index: number | null | undefined) => void;
  /** Called with the range that the user dragged over, or null for a double click. */
  onRange?: (range: Range | null) => void;
}

/** Columns in the order of the options' series: x, then the values and, if any, the band of each line. */
export function plotData(data: ChartData): uPlot.AlignedData {
  const columns: [readonly number[], ...Column[]] = [data.x];
  for (const { values, low, high } of data.lines) columns.push(...(low && high ? [values, high, low] : [values]));
  // uPlot only reads the columns, but its type asks for arrays that may be written to.
  return columns as uPlot.AlignedData;
}

/** The positions of each line's series in the plot: the line itself and the edges of its band. */
export function seriesOf(lines: readonly Line[]): number[][] {
  let next = 1;
  return lines.map((line) => {
    const indices = line.low && line.high ? [next, next + 1, next + 2] : [next];
    next += indices.length;
    return indices;
  });
}

export function plotOptions({ lines, xKind, width, height, showAt, onRange }: Structure): uPlot.Options {
  const style = getComputedStyle(document.documentElement);
  const colour = (name: string) => style.getPropertyValue(name).trim();
  const series: uPlot.Series[] = [{}];
  const bands: uPlot.Band[] = [];
  lines.forEach((line, i) => {
    const stroke = colour(`--series-${(i % 8) + 1}`);
    series.push({
      label: line.label,
      stroke,
      width: 1.75,
      spanGaps: false,
      points: {
        show: (plot) => plot.data[0].length <= MAX_POINTS_WITH_DOTS,
        // A point between two gaps is on no line, so it is always drawn as a dot.
        filter: (plot, index, show) => (show ? null : loneIn(plot.data[index] ?? [])),
        size: 4,
        fill: stroke,
      },
    });
    if (!line.low || !line.high) return;
    const edge: uPlot.Series = { stroke: "transparent", width: 0, spanGaps: false, points: { show: false } };
    series.push({ ...edge, label: `${line.label} high` }, { ...edge, label: `${line.label} low` });
    bands.push({ series: [series.length - 2, series.length - 1], fill: translucent(stroke) });
  });
  const axis: uPlot.Axis = {
    stroke: colour("--muted"),
    font: `11px ${colour("--sans")}`,
    grid: { stroke: colour("--line"), width: 1 },
    ticks: { show: false },
    gap: 6,
  };
  const values = (_: uPlot, ticks: number[]) => ticks.map((tick) => figure(tick));
  return {
    width,
    height,
    series,
    bands,
    padding: [8, 16, 0, 0], // half of the widest label of x is beside its tick
    legend: { show: false },
    scales: { x: { time: xKind === "time" } },
    axes: [
      { ...axis, grid: { show: false }, size: 26, space: 60, ...(xKind === "update" ? { incrs: WHOLE_STEPS } : {}) },
      { ...axis, size: 46, values },
    ],
    cursor: {
      // All charts show the pointer, but a dragged rectangle belongs to one chart.
      sync: { key: `${CURSOR_GROUP}-${xKind}`, filters: { pub: (type) => !RECTANGLE.has(type), sub: () => true } },
      points: { size: 6 },
      drag: { x: true, y: false, setScale: false },
      y: false,
      bind: {
        dblclick: () => () => {
          onRange?.(null);
          return null;
        },
      },
    },
    hooks: {
      setCursor: [(plot) => showAt(plot.cursor.idx)],
      setSelect: [(plot) => rangeDrawn(plot, onRange)],
    },
  };
}

const RECTANGLE = new Set(["mousedown", "mouseup", "dblclick"]);
const WHOLE_STEPS = [1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000, 10_000, 50_000, 100_000, 1_000_000];

function rangeDrawn(plot: uPlot, onRange: Structure["onRange"]): void {
  const { left, width } = plot.select;
  if (width < MIN_DRAGGED_PX) return;
  plot.setSelect({ left: 0, top: 0, width: 0, height: 0 }, false);
  onRange?.([plot.posToVal(left, "x"), plot.posToVal(left + width, "x")]);
}

/** Positions of values with a gap on either side. */
export function loneIn(values: ArrayLike<number | null | undefined>): number[] {
  const lone: number[] = [];
  let last: number | null = null;
  let isAlone = true;
  for (let i = 0; i < values.length; i++) {
    const value = values[i];
    if (value === undefined) continue;
    if (value === null) {
      if (last !== null && isAlone) lone.push(last);
      last = null;
      isAlone = true;
      continue;
    }
    if (last !== null) isAlone = false;
    last = i;
  }
  if (last !== null && isAlone) lone.push(last);
  return lone;
}

function translucent(hex: string): string {
  const [r, g, b] = [1, 3, 5].map((at) => Number.parseInt(hex.slice(at, at + 2), 16));
  return `rgb(${r} ${g} ${b} / ${BAND_OPACITY})`;
}
