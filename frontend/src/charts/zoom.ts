// The range that the charts of a page show, one for each kind of x axis, and the lines that somebody has hidden: kept by
// the page, so that new points and new lines change neither.
import { useCallback, useMemo, useState } from "react";
import type { Range } from "./series";
import type { XKind } from "./TimeSeries";

export interface ChartView {
  /** Null: everything there is. */
  range: Range | null;
  onRange: (range: Range | null) => void;
  hidden: ReadonlySet<string>;
  onToggle: (line: string) => void;
}

const NOTHING: Readonly<Record<XKind, Range | null>> = { update: null, time: null };

export function useChartView(xKind: XKind): ChartView {
  const [ranges, setRanges] = useState(NOTHING);
  const [hidden, setHidden] = useState<ReadonlySet<string>>(new Set());
  const onRange = useCallback((range: Range | null) => setRanges((all) => ({ ...all, [xKind]: range })), [xKind]);
  const onToggle = useCallback((line: string) => setHidden((known) => toggled(known, line)), []);
  const range = ranges[xKind];
  return useMemo(() => ({ range, onRange, hidden, onToggle }), [range, onRange, hidden, onToggle]);
}

function toggled(known: ReadonlySet<string>, line: string): ReadonlySet<string> {
  const next = new Set(known);
  if (!next.delete(line)) next.add(line);
  return next;
}

/** By which a hidden line is known: its chart and its label. */
export function lineName(title: string, label: string): string {
  return `${title}: ${label}`;
}
