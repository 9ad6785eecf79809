// Rarely used charts, rendered only when the section is opened.
import { useState } from "react";
import type { XKind } from "../../../charts/lines/axis";
import { ChartCard } from "../../../charts/lines/ChartCard";
import type { ChartData } from "../../../charts/lines/series";
import type { ChartView } from "../../../charts/lines/zoom";
import { Cards } from "../../../ui/Cards";
import type { Chart } from "./catalogue";

interface Props {
  title: string;
  charts: readonly Chart[];
  onAxis?: (data: ChartData) => ChartData;
  xKind: XKind;
  view: ChartView;
}

export function OtherCharts({ title, charts, onAxis = (data) => data, xKind, view }: Props) {
  const [isOpen, setOpen] = useState(false);
  if (charts.length === 0) return null;
  return (
    <details className="others" onToggle={(event) => setOpen(event.currentTarget.open)}>
      <summary>
        {title} ({charts.length})
      </summary>
      {isOpen ? (
        <Cards className="charts">
          {charts.map(({ title: name, note, data }) => (
            <ChartCard key={name} title={name} note={note} data={onAxis(data)} xKind={xKind} view={view} />
          ))}
        </Cards>
      ) : null}
    </details>
  );
}
