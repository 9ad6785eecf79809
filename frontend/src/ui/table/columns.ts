// What a table shows of its rows, and the order of the rows. Pure.
import type { ReactNode } from "react";

export interface Column<Row> {
  head: string;
  cell: (row: Row) => ReactNode;
  /** Shown instead of the words of `head`, which still name the column. */
  mark?: ReactNode;
  /** Only screen readers get the heading, as over a column of buttons. */
  isHeadHidden?: boolean;
  /** Explains the heading. */
  help?: string;
  /** Its cells name their rows. */
  isRowHead?: boolean;
  /** Aligned on the right. */
  isNumber?: boolean;
  className?: string;
  title?: (row: Row) => string | undefined;
  /** By what the rows can be sorted. Missing values come last. */
  order?: (row: Row) => Orderable;
}

export type Orderable = string | number | null | undefined;
/** A column that does not apply is `false` or null. */
export type Columns<Row> = readonly (Column<Row> | false | null)[];

export function shownColumns<Row>(columns: Columns<Row>): Column<Row>[] {
  return columns.filter((column) => column !== false && column !== null);
}

/** An order as it stands in the address: the heading of a column, after a minus if the largest comes first. */
export interface Order {
  head: string;
  isDescending: boolean;
}

export function orderOf(text: string): Order {
  return { head: text.replace(/^-/, ""), isDescending: text.startsWith("-") };
}

/** What a click on a heading asks for: ascending, then descending, then the usual order again. */
export function nextOrder(text: string, head: string): string {
  if (text === head) return `-${head}`;
  return text === `-${head}` ? "" : head;
}

export function sorted<Row>(rows: readonly Row[], columns: readonly Column<Row>[], text: string): readonly Row[] {
  const { head, isDescending } = orderOf(text);
  const order = columns.find((column) => column.head === head)?.order;
  if (!order) return rows;
  return rows.toSorted((a, b) => compared(order(a), order(b), isDescending ? -1 : 1));
}

function compared(a: Orderable, b: Orderable, sign: number): number {
  const [hasNoA, hasNoB] = [a === null || a === undefined, b === null || b === undefined];
  if (hasNoA || hasNoB) return Number(hasNoA) - Number(hasNoB);
  return sign * (typeof a === "number" && typeof b === "number" ? a - b : String(a).localeCompare(String(b)));
}
