// uPlot's options and columns for a chart of lines with bands. Colours come from the page's style at the time of making.
import type uPlot from "uplot";
import { figure } from "../ui/format";
import type { ChartData, Line } from "./series";
import type { XKind } from "./TimeSeries";

const CURSOR_GROUP = "job";
const BAND_OPACITY = 0.16;
const MAX_POINTS_WITH_DOTS = 60;

interface Structure {
  lines: readonly Line[];
  xKind: XKind;
  width: number;
  height: number;
  /** Called with the index under the pointer, or null where there is none. */
  showAt: (index: number | null | undefined) => void;
}

/** Columns in the order of the options' series: x, then for each line its values and, where it has them, its band. */
export function plotData(data: ChartData): uPlot.AlignedData {
  const columns = data.lines.flatMap((line) =>
    line.low && line.high ? [line.values, line.high, line.low] : [line.values],
  );
  return [data.x, ...columns] as unknown as uPlot.AlignedData;
}

export function plotOptions({ lines, xKind, width, height, showAt }: Structure): uPlot.Options {
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
      spanGaps: true,
      points: { show: (plot) => plot.data[0].length <= MAX_POINTS_WITH_DOTS, size: 4, fill: stroke },
    });
    if (!line.low) return;
    const edge: uPlot.Series = { stroke: "transparent", width: 0, points: { show: false } };
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
    padding: [8, 8, 0, 0],
    legend: { show: false },
    scales: { x: { time: xKind === "time" } },
    axes: [
      { ...axis, grid: { show: false }, size: 26, space: 60, ...(xKind === "update" ? { incrs: WHOLE_STEPS } : {}) },
      { ...axis, size: 46, values },
    ],
    cursor: {
      sync: { key: `${CURSOR_GROUP}-${xKind}` },
      points: { size: 6 },
      drag: { x: true, y: false },
      y: false,
    },
    hooks: { setCursor: [(plot) => showAt(plot.cursor.idx)] },
  };
}

const WHOLE_STEPS = [1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000, 10_000, 50_000, 100_000, 1_000_000];

function translucent(hex: string): string {
  const [r, g, b] = [1, 3, 5].map((at) => Number.parseInt(hex.slice(at, at + 2), 16));
  return `rgb(${r} ${g} ${b} / ${BAND_OPACITY})`;
}
