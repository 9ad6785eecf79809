// The visible range of a page's charts, one per kind of x axis, and the lines the user has hidden. The address stores
// both, so new points and lines do not change them, and a link shows the same.
import { useCallback, useMemo } from "react";
import { NAMES, RANGE, useViewState } from "../../ui/useViewState";
import type { XKind } from "./axis";
import type { Range } from "./series";

export interface ChartView {
  /** Null shows everything. */
  range: Range | null;
  onRange: (range: Range | null) => void;
  hidden: ReadonlySet<string>;
  onToggle: (line: string) => void;
}

const ZOOMED: Readonly<Record<XKind, string>> = { update: "updates", time: "times" };

export function useChartView(xKind: XKind): ChartView {
  const [range, onRange] = useViewState(ZOOMED[xKind], RANGE);
  const [hidden, setHidden] = useViewState("hidden", NAMES);
  const onToggle = useCallback((line: string) => setHidden(toggled(hidden, line)), [hidden, setHidden]);
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
