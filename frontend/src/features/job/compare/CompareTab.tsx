// Compares this job with another of any age (`?with=<job>`). Both are updated live.
import { type ReactNode, useMemo } from "react";
import { Link } from "react-router";
import { useJob } from "../../../api/queries";
import { ChartCard } from "../../../charts/lines/ChartCard";
import { type ChartView, useChartView } from "../../../charts/lines/zoom";
import { useServerNow, useTopic } from "../../../live/LiveProvider";
import { JOB } from "../../../live/topics";
import { JobSearch } from "../../../pickers/JobSearch";
import { Cards } from "../../../ui/Cards";
import { Loading } from "../../../ui/Loading";
import { Problem } from "../../../ui/Problem";
import { StateBadge } from "../../../ui/StateBadge";
import type { Columns } from "../../../ui/table/columns";
import { Table } from "../../../ui/table/Table";
import { TEXT, useViewState } from "../../../ui/useViewState";
import { shownState } from "../../../ui/words/jobStates";
import { OtherCharts } from "../metrics/OtherCharts";
import { useJobMetrics } from "../metrics/useJobMetrics";
import type { TabProps } from "../tab";
import { figuresOf, labelsOf, pairsOf, type Row, type Side, specDifferences } from "./compare";

const EVERY_MS = 5000;
/** Another job is drawn to other scales and has other lines. */
const OF_OTHER = ["updates", "hidden"];

export function CompareTab({ jobId, job, live }: TabProps) {
  const [asked, setAsked] = useViewState("with", TEXT, OF_OTHER);
  const otherId = asked === jobId ? "" : asked;
  return (
    <>
      <div className="toolbar compare-toolbar">
        <JobSearch
          label="Compare with"
          without={otherId ? [jobId, otherId] : [jobId]}
          onPick={(other) => setAsked(other.id)}
        />
      </div>
      {otherId ? (
        <Other key={otherId} otherId={otherId} jobId={jobId} job={job} live={live} />
      ) : (
        <p className="none">Choose a job to compare its curves, summary and spec with this job's.</p>
      )}
    </>
  );
}

function Other({ otherId, jobId, job, live }: TabProps & { otherId: string }) {
  const detail = useJob(otherId);
  const otherLive = useTopic(JOB.name(otherId), JOB.definition);
  const view = useChartView("update");
  const { metrics, width } = useJobMetrics(jobId, live, { range: view.range });
  const { metrics: otherMetrics, width: otherWidth } = useJobMetrics(otherId, otherLive, { range: view.range });
  const spec = useJob(jobId).data?.spec;
  if (detail.error) return <Problem error={detail.error} />;
  const other = otherLive?.job;
  if (!other || !detail.data || !spec) return <Loading what="Loading other job" />;
  const [label, otherLabel] = labelsOf(job, other);
  const here = { label, job, metrics };
  const there = { label: otherLabel, job: other, metrics: otherMetrics };
  const differences = specDifferences(spec, detail.data.spec);
  return <Beside {...{ here, there, differences, view }} width={Math.max(width, otherWidth)} />;
}

interface BesideProps {
  here: Side;
  there: Side;
  differences: readonly Row[];
  view: ChartView;
  width: number;
}

function Beside({ here, there, differences, view, width }: BesideProps) {
  const now = useServerNow(EVERY_MS);
  const { first, others } = useMemo(() => pairsOf(here, there, width), [here, there, width]);
  return (
    <>
      <Cards className="compare-tables">
        <section className="card wide">
          <h2>Summary</h2>
          <RowTable here={here} there={there} rows={[statesOf(here, there), ...figuresOf(here, there, now)]} />
        </section>
        <section className="card wide" data-testid="differences">
          <h2>Spec differences</h2>
          {differences.length ? (
            <RowTable here={here} there={there} rows={differences} />
          ) : (
            <p className="none">The specs are identical apart from the job names.</p>
          )}
        </section>
      </Cards>
      <Cards className="charts">
        {first.map(({ title, note, data }, i) => (
          <ChartCard
            key={title}
            title={title}
            note={note}
            data={data}
            xKind="update"
            view={view}
            isWide={i === 0}
            {...(i === 0 ? { height: 260 } : {})}
          />
        ))}
      </Cards>
      <OtherCharts title="All other metrics of both jobs" charts={others} xKind="update" view={view} />
    </>
  );
}

type ShownRow = Record<keyof Row, ReactNode> & Pick<Row, "what">;

function RowTable({ here, there, rows }: { here: Side; there: Side; rows: readonly ShownRow[] }) {
  const columns: Columns<ShownRow> = [
    { head: "", isRowHead: true, cell: ({ what }) => what },
    {
      head: here.label,
      mark: (
        <>
          <span className="swatch stroke series-1" /> {here.label}
        </>
      ),
      cell: (row) => row.here,
    },
    {
      head: there.label,
      mark: (
        <>
          <span className="swatch stroke series-2" /> <Link to={`/jobs/${there.job.id}`}>{there.label}</Link>
        </>
      ),
      cell: (row) => row.there,
    },
  ];
  return <Table rows={rows} columns={columns} keyOf={({ what }) => what} className="compare" frame="inside" />;
}

function statesOf(here: Side, there: Side): ShownRow {
  const badge = ({ job }: Side) => <StateBadge state={shownState(job.state, job.paused_by)} />;
  return { what: "State", here: badge(here), there: badge(there) };
}
