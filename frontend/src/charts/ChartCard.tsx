// A card around a chart: its name, what it means, and its values as a table for who cannot or will not read curves.
import { useState } from "react";
import { Dialog } from "../ui/Dialog";
import { figure, moment } from "../ui/format";
import { Icon } from "../ui/Icon";
import type { ChartData } from "./series";
import { TimeSeries, type XKind } from "./TimeSeries";

interface Props {
  title: string;
  note?: string;
  data: ChartData;
  xKind: XKind;
  height?: number;
  say?: (value: number | null) => string;
  isWide?: boolean;
}

const MAX_TABLE_ROWS = 1000;

export function ChartCard({ title, note, data, xKind, height = 150, say = figure, isWide = false }: Props) {
  const [isTable, setTable] = useState(false);
  return (
    <section className={isWide ? "card chart-card span" : "card chart-card"}>
      <div className="card-head">
        <h2>{title}</h2>
        {note ? <span className="muted">{note}</span> : null}
        <button
          type="button"
          className="icon-button small end"
          aria-label={`${title} as a table`}
          title="Show as a table"
          onClick={() => setTable(true)}
        >
          <Icon name="table" />
        </button>
      </div>
      {data.x.length > 0 ? (
        <TimeSeries title={title} data={data} xKind={xKind} height={height} say={say} />
      ) : (
        <p className="none">No point yet.</p>
      )}
      {isTable ? (
        <Dialog title={title} onClose={() => setTable(false)} isWide>
          <ValueTable data={data} xKind={xKind} say={say} />
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
  const order = data.x.map((_, i) => i).reverse();
  return (
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
          {order.slice(0, MAX_TABLE_ROWS).map((i) => (
            <tr key={data.x[i]}>
              <td className="number">{xKind === "update" ? data.x[i] : moment((data.x[i] as number) * 1000)}</td>
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
  );
}
