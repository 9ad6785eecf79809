// The visible range of a page's charts, one per kind of x axis, and the lines the user has hidden. The page keeps both,
// so new points and lines do not change them.
import { useCallback, useMemo, useState } from "react";
import type { XKind } from "./axis";
import type { Range } from "./series";

export interface ChartView {
  /** Null shows everything. */
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

/** Identifies a hidden line by its chart and label. */
export function lineName(title: string, label: string): string {
  return `${title}: ${label}`;
}
