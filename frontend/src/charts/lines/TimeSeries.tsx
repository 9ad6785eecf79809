// A line chart drawn by uPlot. The plot is rebuilt only when its structure or the theme changes; new values are swapped
// in, and zoom and hidden lines are kept. The legend shows the values at the pointer, else one value per line for the
// visible range.
import { useEffect, useLayoutEffect, useRef } from "react";
import uPlot from "uplot";
import "uplot/dist/uPlot.min.css";
import { useTheme } from "../../ui/theme/theme";
import type { XKind } from "./axis";
import { plotData, plotOptions, seriesOf } from "./plotOptions";
import { type ChartData, described, type Range, saidOf } from "./series";
import { type ChartView, lineName } from "./zoom";

export interface TimeSeriesProps {
  title: string;
  data: ChartData;
  xKind: XKind;
  height: number;
  say: (value: number | null) => string;
  view: ChartView;
}

export function TimeSeries({ title, data, xKind, height, say, view }: TimeSeriesProps) {
  const host = useRef<HTMLDivElement>(null);
  const plot = useRef<uPlot | null>(null);
  const values = useRef<HTMLSpanElement[]>([]);
  const current = useRef({ data, say, view });
  current.current = { data, say, view };
  const theme = useTheme();
  const structure = data.lines.map((line) => `${line.label}${line.low ? "±" : ""}`).join("|");

  // biome-ignore lint/correctness/useExhaustiveDependencies: the options read what `structure` and `theme` stand for.
  useLayoutEffect(() => {
    const element = host.current;
    if (!element) return;
    const showAt = (index: number | null | undefined) => {
      const { data: shown, say: format, view: now } = current.current;
      shown.lines.forEach((line, i) => {
        const label = values.current[i];
        const value = typeof index === "number" ? (line.values[index] ?? null) : saidOf(line, shown.x, now.range);
        if (label) label.textContent = format(value);
      });
    };
    const onRange = (range: Range | null) => current.current.view.onRange(range);
    const { lines } = current.current.data;
    const options = plotOptions({ lines, xKind, width: element.clientWidth, height, showAt, onRange });
    const made = new uPlot(options, plotData(current.current.data), element);
    plot.current = made;
    const observer = new ResizeObserver(() => made.setSize({ width: element.clientWidth, height }));
    observer.observe(element);
    return () => {
      observer.disconnect();
      made.destroy();
      plot.current = null;
    };
  }, [structure, theme, xKind, height]);

  // biome-ignore lint/correctness/useExhaustiveDependencies: a new plot needs the range and the lines too.
  useEffect(() => {
    const made = plot.current;
    if (!made) return;
    showData(made, title, data, view);
    const pointed = made.cursor.idx;
    data.lines.forEach((line, i) => {
      const label = values.current[i];
      const value = pointed == null ? saidOf(line, data.x, view.range) : (line.values[pointed] ?? null);
      if (label) label.textContent = say(value);
    });
  }, [title, data, say, view, structure, theme, xKind, height]);

  return (
    <div className="series">
      <div className="series-legend">
        {data.lines.map((line, i) => {
          const isHidden = view.hidden.has(lineName(title, line.label));
          return (
            <button
              key={line.label}
              type="button"
              className={isHidden ? "series-key off" : "series-key"}
              aria-pressed={!isHidden}
              title={isHidden ? "Show this line" : "Hide this line"}
              onClick={() => view.onToggle(lineName(title, line.label))}
            >
              <span className={`swatch stroke series-${(i % 8) + 1}`} />
              {line.label}{" "}
              <span
                className="series-value"
                ref={(element) => {
                  if (element) values.current[i] = element;
                }}
              />
            </button>
          );
        })}
      </div>
      <div ref={host} className="series-plot" role="img" aria-label={described(title, data, (value) => say(value))} />
    </div>
  );
}

/** Swaps the values in. The x scale shows the zoomed range, or everything. */
function showData(plot: uPlot, title: string, data: ChartData, view: ChartView): void {
  plot.batch(() => {
    plot.setData(plotData(data), false);
    seriesOf(data.lines).forEach((indices, i) => {
      const isShown = !view.hidden.has(lineName(title, data.lines[i]?.label ?? ""));
      for (const index of indices) {
        if (plot.series[index]?.show !== isShown) plot.setSeries(index, { show: isShown });
      }
    });
    const [first, last] = view.range ?? [data.x[0] ?? 0, data.x.at(-1) ?? 0];
    plot.setScale("x", { min: first, max: last });
  });
}
