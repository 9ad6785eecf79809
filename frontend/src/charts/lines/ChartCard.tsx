// A card around a chart: title, note, and the values as a table for readers who prefer or need one.
import { useState } from "react";
import { Button, IconButton } from "../../ui/Button";
import { Dialog } from "../../ui/Dialog";
import type { Columns } from "../../ui/table/columns";
import { Table } from "../../ui/table/Table";
import { figure, integer, moment } from "../../ui/words/format";
import { numberAt } from "../../values/columns";
import type { XKind } from "./axis";
import { type ChartData, within } from "./series";
import { TimeSeries } from "./TimeSeries";
import type { ChartView } from "./zoom";

interface Props {
  title: string;
  note?: string;
  data: ChartData;
  xKind: XKind;
  height?: number;
  say?: (value: number | null) => string;
  isWide?: boolean;
  /** Zoom and hidden lines, common to the charts of a page. */
  view: ChartView;
}

const MAX_TABLE_ROWS = 1000;

export function ChartCard({ title, note, data, xKind, height = 150, say = figure, isWide = false, view }: Props) {
  const [isTable, setTable] = useState(false);
  return (
    <section className={isWide ? "card chart-card span" : "card chart-card"}>
      <div className="card-head">
        <h2>{title}</h2>
        {note ? <span className="muted">{note}</span> : null}
        {view.range ? (
          <Button look="link" isAtEnd onClick={() => view.onRange(null)}>
            Reset zoom
          </Button>
        ) : null}
        <IconButton
          icon="table"
          label={`${title} as a table`}
          title="Show as a table"
          isSmall
          className={view.range ? "" : "end"}
          onClick={() => setTable(true)}
        />
      </div>
      {data.x.length > 0 ? (
        <TimeSeries title={title} data={data} xKind={xKind} height={height} say={say} view={view} />
      ) : (
        <p className="none">No data yet.</p>
      )}
      {isTable ? (
        <Dialog title={title} onClose={() => setTable(false)} isWide>
          <ValueTable data={view.range ? within(data, view.range) : data} xKind={xKind} say={say} />
          <div className="button-row">
            <Button onClick={() => setTable(false)}>Close</Button>
          </div>
        </Dialog>
      ) : null}
    </section>
  );
}

function ValueTable({ data, xKind, say }: { data: ChartData; xKind: XKind; say: (value: number | null) => string }) {
  const rows = data.x.map((_, i) => i).filter((i) => data.lines.some(({ values }) => typeof values[i] === "number"));
  const newest = rows.reverse().slice(0, MAX_TABLE_ROWS);
  const columns: Columns<number> = [
    {
      head: xKind === "update" ? "Update" : "Time",
      isNumber: true,
      cell: (i) => (xKind === "update" ? data.x[i] : moment(numberAt(data.x, i) * 1000)),
    },
    ...data.lines.map(({ label, values }) => ({
      head: label,
      isNumber: true,
      cell: (i: number) => say(values[i] ?? null),
    })),
  ];
  return (
    <>
      {newest.length < rows.length ? (
        <p className="muted">
          Showing the newest {integer(newest.length)} of {integer(rows.length)} rows. Zoom into the chart to see others.
        </p>
      ) : null}
      <section className="scroll" aria-label="Values">
        <Table rows={newest} columns={columns} keyOf={(i) => numberAt(data.x, i)} frame="none" />
      </section>
    </>
  );
}
