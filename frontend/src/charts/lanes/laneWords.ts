// The tooltip text for the moment under the pointer. Pure.
import { clock, duration, percent } from "../../ui/words/format";
import { KINDS, kindOf } from "./kinds";
import { columnsOf, type Span, spanAt } from "./lanes";

/** Describes the span if one kind fills the column, and otherwise the share of each kind. Null if nothing is known. */
export function saidAt(spans: readonly Span[], at: number, columnMs: number): string | null {
  const begin = at - columnMs / 2;
  const shares = columnsOf(spans, { begin, columnMs, numColumns: 1 });
  const said = KINDS.flatMap(({ word }, place) => {
    const share = shares[place] ?? 0;
    return share > 0 ? [`${word} ${percent(share)}`] : [];
  });
  if (said.length > 1) return `${duration(columnMs)} from ${clock(begin)}: ${said.join(", ")}`;
  const span = spanAt(spans, at);
  return span ? spanSaid(span) : null;
}

function spanSaid(span: Span): string {
  const { word, meaning } = kindOf(span.state, span.cause);
  return `${word}, ${duration(span.end - span.start)} from ${clock(span.start)}. ${meaning}`;
}
