// The tooltip text for the moment under the pointer. Pure.
import { clock, duration, percent } from "../../ui/words/format";
import { KINDS, kindOf } from "./kinds";
import { columnsOf, type Span, spanAt } from "./lanes";

/** Describes the span if one kind fills the column, and otherwise the fraction of each kind. Null if nothing is known. */
export function textAt(spans: readonly Span[], at: number, columnMs: number): string | null {
  const begin = at - columnMs / 2;
  const shares = columnsOf(spans, { begin, columnMs, numColumns: 1 });
  const wording = KINDS.flatMap(({ word }, index) => {
    const share = shares[index] ?? 0;
    return share > 0 ? [`${word} ${percent(share)}`] : [];
  });
  if (wording.length > 1) return `${duration(columnMs)} from ${clock(begin)}: ${wording.join(", ")}`;
  const span = spanAt(spans, at);
  return span ? spanText(span) : null;
}

function spanText(span: Span): string {
  const { word, meaning } = kindOf(span.state, span.cause);
  return `${word}, ${duration(span.end - span.start)} from ${clock(span.start)}. ${meaning}`;
}
