// A table of rows. Each column makes its cell of a row; a click on a heading sorts by it, which the address keeps.
import { Fragment, type ReactNode } from "react";
import { TEXT, useViewState } from "../useViewState";
import { type Column, type Columns, nextOrder, orderOf, shownColumns, sorted } from "./columns";

const FRAMES = { card: "card flush wide", inside: "wide", none: "" } as const;

export interface TableProps<Row> {
  rows: readonly Row[];
  columns: Columns<Row>;
  keyOf: (row: Row) => string | number;
  testId?: string;
  className?: string;
  /** What is around it: a card of its own, a card of others, or nothing. It scrolls sideways in a card. */
  frame?: keyof typeof FRAMES;
  /** The parameter of the address with the order; without it, rows cannot be sorted. Only for lists that are whole. */
  sortedBy?: string;
  /** Rows of the table below the row. */
  below?: (row: Row) => ReactNode;
}

export function Table<Row>(props: TableProps<Row>) {
  const { rows, keyOf, testId, className = "", frame = "card", sortedBy, below } = props;
  const columns = shownColumns(props.columns);
  const [order, setOrder] = useViewState(sortedBy ?? "", TEXT);
  const shown = sortedBy ? sorted(rows, columns, order) : rows;
  return (
    <div className={FRAMES[frame]}>
      <table className={`table ${className}`} data-testid={testId}>
        <thead>
          <tr>
            {columns.map((column) => (
              <Head
                key={column.head}
                column={column}
                order={sortedBy && column.order ? order : null}
                onOrder={() => setOrder(nextOrder(order, column.head))}
              />
            ))}
          </tr>
        </thead>
        <tbody>
          {shown.map((row) => (
            <Fragment key={keyOf(row)}>
              <tr>
                {columns.map((column) => (
                  <Cell key={column.head} column={column} row={row} />
                ))}
              </tr>
              {below?.(row)}
            </Fragment>
          ))}
        </tbody>
      </table>
    </div>
  );
}

function Cell<Row>({ column, row }: { column: Column<Row>; row: Row }) {
  const { cell, isRowHead, isNumber, className, title } = column;
  if (isRowHead) return <th scope="row">{cell(row)}</th>;
  return (
    <td className={classes(isNumber, className)} title={title?.(row)}>
      {cell(row)}
    </td>
  );
}

interface HeadProps<Row> {
  column: Column<Row>;
  /** Null if the rows cannot be sorted by this column. */
  order: string | null;
  onOrder: () => void;
}

function Head<Row>({ column, order, onOrder }: HeadProps<Row>) {
  const { head, mark, isHeadHidden, help, isNumber } = column;
  const { head: by, isDescending } = orderOf(order ?? "");
  const isSorted = order !== null && by === head;
  const words = isHeadHidden ? <span className="visually-hidden">{head}</span> : (mark ?? head);
  return (
    <th
      scope="col"
      className={classes(isNumber)}
      title={help}
      aria-sort={isSorted ? (isDescending ? "descending" : "ascending") : undefined}
    >
      {order === null ? (
        words
      ) : (
        <button type="button" className="sort" onClick={onOrder}>
          {words}
        </button>
      )}
    </th>
  );
}

function classes(isNumber = false, className = ""): string | undefined {
  return [isNumber ? "number" : "", className].filter(Boolean).join(" ") || undefined;
}
