// A chart of lines, drawn by uPlot. The plot is made anew only when its structure or the theme changes; new values are
// swapped in. Under the pointer the legend says the values there, else the newest ones.
import { useEffect, useLayoutEffect, useRef } from "react";
import uPlot from "uplot";
import "uplot/dist/uPlot.min.css";
import { useTheme } from "../ui/theme";
import { plotData, plotOptions } from "./plotOptions";
import { type ChartData, described, lastKnown } from "./series";

export type XKind = "update" | "time";

export interface TimeSeriesProps {
  title: string;
  data: ChartData;
  xKind: XKind;
  height: number;
  say: (value: number | null) => string;
}

export function TimeSeries({ title, data, xKind, height, say }: TimeSeriesProps) {
  const host = useRef<HTMLDivElement>(null);
  const plot = useRef<uPlot | null>(null);
  const values = useRef<HTMLSpanElement[]>([]);
  const current = useRef({ data, say });
  current.current = { data, say };
  const theme = useTheme();
  const structure = data.lines.map((line) => `${line.label}${line.low ? "±" : ""}`).join("|");

  // biome-ignore lint/correctness/useExhaustiveDependencies: `structure` and `theme` stand for what the options read.
  useLayoutEffect(() => {
    const place = host.current;
    if (!place) return;
    const showAt = (index: number | null | undefined) => {
      const { data: shown, say: format } = current.current;
      shown.lines.forEach((line, i) => {
        const label = values.current[i];
        const value = typeof index === "number" ? (line.values[index] ?? null) : lastKnown(line.values);
        if (label) label.textContent = format(value);
      });
    };
    const options = plotOptions({ lines: current.current.data.lines, xKind, width: place.clientWidth, height, showAt });
    const made = new uPlot(options, plotData(current.current.data), place);
    plot.current = made;
    const observer = new ResizeObserver(() => made.setSize({ width: place.clientWidth, height }));
    observer.observe(place);
    showAt(null);
    return () => {
      observer.disconnect();
      made.destroy();
      plot.current = null;
    };
  }, [structure, theme, xKind, height]);

  useEffect(() => {
    plot.current?.setData(plotData(data));
    data.lines.forEach((line, i) => {
      const label = values.current[i];
      if (label && plot.current?.cursor.idx == null) label.textContent = say(lastKnown(line.values));
    });
  }, [data, say]);

  return (
    <div className="series">
      <div className="series-legend" aria-hidden="true">
        {data.lines.map((line, i) => (
          <span key={line.label} className="series-key">
            <span className={`swatch stroke series-${(i % 8) + 1}`} />
            {line.label}{" "}
            <span
              className="series-value"
              ref={(element) => {
                if (element) values.current[i] = element;
              }}
            />
          </span>
        ))}
      </div>
      <div ref={host} className="series-plot" role="img" aria-label={described(title, data, (value) => say(value))} />
    </div>
  );
}
