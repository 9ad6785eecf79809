// Disk usage by project and kind, as last measured by the background process.
import { Link } from "react-router";
import { Card } from "../../ui/Cards";
import { Loading } from "../../ui/Loading";
import { Problem } from "../../ui/Problem";
import type { Columns } from "../../ui/table/columns";
import { Table } from "../../ui/table/Table";
import { bytes, moment, NONE, percent } from "../../ui/words/format";
import { type Usage, useUsages } from "./queries";
import { sharesOf, USAGE_KINDS } from "./usage";

export function UsageTable({ chosen }: { chosen: string }) {
  const usages = useUsages();
  if (usages.error) return <Problem error={usages.error} />;
  if (!usages.data) return <Loading what="Loading disk usage" />;
  const rows = usages.data.results;
  const measured = rows.flatMap(({ measured_at }) => (measured_at ? [Date.parse(measured_at)] : []));
  const note = measured.length > 0 ? `measured ${moment(Math.max(...measured))}` : "not measured yet";
  return (
    <Card title="Disk usage" note={note} className="flush">
      <Table
        rows={rows}
        columns={columnsOf(rows.length > 1 ? chosen : null)}
        keyOf={(usage) => usage.project}
        testId="usage"
        className="roomy"
        frame="inside"
        sortedBy="usage"
      />
    </Card>
  );
}

function columnsOf(chosen: string | null): Columns<Usage> {
  return [
    {
      head: "Project",
      className: "nowrap",
      order: (usage) => usage.project,
      cell: ({ project }) =>
        project === chosen ? <strong>{project}</strong> : <Link to={`/storage?project=${project}`}>{project}</Link>,
    },
    {
      head: "Total",
      isNumber: true,
      className: "nowrap",
      order: (usage) => usage.num_bytes,
      cell: (usage) => bytes(usage.num_bytes),
    },
    { head: "By kind", className: "usage-cell", cell: (usage) => <UsageBar usage={usage} /> },
    ...USAGE_KINDS.map(({ kind, word, colour }) => ({
      head: word,
      mark: (
        <>
          <span className={`swatch series-${colour}`} aria-hidden="true" /> {word}
        </>
      ),
      isNumber: true,
      className: "nowrap",
      order: (usage: Usage) => usage.by_kind[kind],
      cell: (usage: Usage) => (usage.by_kind[kind] ? bytes(usage.by_kind[kind]) : NONE),
    })),
  ];
}

function UsageBar({ usage }: { usage: Usage }) {
  return (
    <div className="usage-bar" aria-hidden="true">
      {sharesOf(usage)
        .filter(({ share }) => share > 0)
        .map(({ kind, word, colour, share }) => (
          <span
            key={kind}
            className={`series-${colour}`}
            style={{ flexGrow: share }}
            title={`${word}: ${percent(share)}`}
          />
        ))}
    </div>
  );
}
