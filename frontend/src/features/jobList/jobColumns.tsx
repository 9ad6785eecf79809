// The table of jobs.
import { Link } from "react-router";
import { ranMs } from "../../live/ran";
import { Progress } from "../../ui/Progress";
import { Sparkline } from "../../ui/Sparkline";
import { StateBadge } from "../../ui/StateBadge";
import { scaleOf } from "../../ui/scale";
import type { Columns } from "../../ui/table/columns";
import { age, decimal, duration, integer, moment, NONE } from "../../ui/words/format";
import { shownState } from "../../ui/words/jobStates";
import type { ListRow } from "./jobRows";

/** The project column is hidden for users who can read only one project. */
export function jobColumns(rows: readonly ListRow[], now: number, hasProjects: boolean): Columns<ListRow> {
  const scale = scaleOf(rows.map((row) => row.curve)) ?? [0, 1];
  return [
    {
      head: "Job",
      className: "job-name",
      cell: (row) => (
        <>
          <Link to={`/jobs/${row.id}`}>{row.name}</Link>
          {row.why ? (
            <span className="why short" title={row.why}>
              {row.why}
            </span>
          ) : null}
        </>
      ),
    },
    { head: "State", cell: (row) => <StateBadge state={shownState(row.state, row.pausedBy)} /> },
    { head: "Updates", cell: (row) => <Updates row={row} /> },
    {
      head: "Reward",
      help: `All curves run from ${decimal(scale[0], 2)} to ${decimal(scale[1], 2)}`,
      cell: (row) => (
        <div className="reward-cell">
          <Sparkline points={row.curve} scale={scale} />
          <span className="figures">{decimal(row.reward, 2)}</span>
        </div>
      ),
    },
    { head: "Duration", isNumber: true, className: "nowrap", cell: (row) => ranFor(row, now) },
    hasProjects && { head: "Project", cell: (row) => row.project },
    { head: "Owner", cell: (row) => row.owner ?? NONE },
    {
      head: "Submitted",
      isNumber: true,
      className: "nowrap",
      title: (row) => moment(row.createdAt),
      cell: (row) => age(now - row.createdAt),
    },
  ];
}

function ranFor(row: ListRow, now: number): string {
  const ran = ranMs(row.times, now);
  return ran === null ? NONE : duration(ran);
}

function Updates({ row }: { row: ListRow }) {
  return (
    <div className="progress-cell">
      <Progress done={row.numDone} all={row.numAll} label={`Updates of ${row.name}`} />
      <span className="figures">
        {integer(row.numDone)} <span className="muted">/ {integer(row.numAll)}</span>
      </span>
    </div>
  );
}
