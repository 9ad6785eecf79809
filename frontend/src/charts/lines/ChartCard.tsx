// A card around a chart: title, note, and the values as a table for readers who prefer or need one.

import { useState } from "react";
import { Dialog } from "../../ui/Dialog";
import { Icon } from "../../ui/Icon";
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
  /** Zoom and hidden lines, shared by the charts of a page. */
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
          <button type="button" className="link-button zoom-reset end" onClick={() => view.onRange(null)}>
            Reset zoom
          </button>
        ) : null}
        <button
          type="button"
          className={view.range ? "icon-button small" : "icon-button small end"}
          aria-label={`${title} as a table`}
          title="Show as a table"
          onClick={() => setTable(true)}
        >
          <Icon name="table" />
        </button>
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
            <button type="button" className="button" onClick={() => setTable(false)}>
              Close
            </button>
          </div>
        </Dialog>
      ) : null}
    </section>
  );
}

function ValueTable({ data, xKind, say }: { data: ChartData; xKind: XKind; say: (value: number | null) => string }) {
  const rows = data.x.map((_, i) => i).filter((i) => data.lines.some(({ values }) => typeof values[i] === "number"));
  const newest = rows.reverse().slice(0, MAX_TABLE_ROWS);
  return (
    <>
      {newest.length < rows.length ? (
        <p className="muted">
          Showing the newest {integer(newest.length)} of {integer(rows.length)} rows. Zoom into the chart to see others.
        </p>
      ) : null}
      <section className="scroll" aria-label="Values">
        <table className="table">
          <thead>
            <tr>
              <th className="number">{xKind === "update" ? "Update" : "Time"}</th>
              {data.lines.map((line) => (
                <th key={line.label} className="number">
                  {line.label}
                </th>
              ))}
            </tr>
          </thead>
          <tbody>
            {newest.map((i) => (
              <tr key={data.x[i]}>
                <td className="number">{xKind === "update" ? data.x[i] : moment(numberAt(data.x, i) * 1000)}</td>
                {data.lines.map((line) => (
                  <td key={line.label} className="number">
                    {say(line.values[i] ?? null)}
                  </td>
                ))}
              </tr>
            ))}
          </tbody>
        </table>
      </section>
    </>
  );
}
