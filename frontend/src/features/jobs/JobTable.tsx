// The table of jobs.
import { Link } from "react-router";
import { ranMs } from "../../live/ran";
import { Progress } from "../../ui/Progress";
import { Sparkline } from "../../ui/Sparkline";
import { StateBadge } from "../../ui/StateBadge";
import { type Scale, scaleOf } from "../../ui/scale";
import { age, decimal, duration, integer, moment, NONE } from "../../ui/words/format";
import { shownState } from "../../ui/words/jobStates";
import type { ListRow } from "./jobRows";

interface Props {
  rows: readonly ListRow[];
  now: number;
  /** The project column is hidden for users who can read only one project. */
  hasProjects: boolean;
}

export function JobTable({ rows, now, hasProjects }: Props) {
  const scale = scaleOf(rows.map((row) => row.curve)) ?? [0, 1];
  return (
    <div className="card flush wide">
      <table className="table roomy">
        <thead>
          <tr>
            <th>Job</th>
            <th>State</th>
            <th>Updates</th>
            <th title={`All curves run from ${decimal(scale[0], 2)} to ${decimal(scale[1], 2)}`}>Reward</th>
            <th className="number">Duration</th>
            {hasProjects ? <th>Project</th> : null}
            <th>Owner</th>
            <th className="number">Submitted</th>
          </tr>
        </thead>
        <tbody>
          {rows.map((row) => (
            <JobLine key={row.id} row={row} now={now} scale={scale} hasProjects={hasProjects} />
          ))}
        </tbody>
      </table>
    </div>
  );
}

interface LineProps {
  row: ListRow;
  now: number;
  scale: Scale;
  hasProjects: boolean;
}

function JobLine({ row, now, scale, hasProjects }: LineProps) {
  const ran = ranMs(row.times, now);
  return (
    <tr>
      <td className="job-name">
        <Link to={`/jobs/${row.id}`}>{row.name}</Link>
        {row.why ? (
          <span className="why short" title={row.why}>
            {row.why}
          </span>
        ) : null}
      </td>
      <td>
        <StateBadge state={shownState(row.state, row.pausedBy)} />
      </td>
      <td>
        <div className="progress-cell">
          <Progress done={row.numDone} all={row.numAll} label={`Updates of ${row.name}`} />
          <span className="figures">
            {integer(row.numDone)} <span className="muted">/ {integer(row.numAll)}</span>
          </span>
        </div>
      </td>
      <td>
        <div className="reward-cell">
          <Sparkline points={row.curve} scale={scale} />
          <span className="figures">{decimal(row.reward, 2)}</span>
        </div>
      </td>
      <td className="number nowrap">{ran === null ? NONE : duration(ran)}</td>
      {hasProjects ? <td>{row.project}</td> : null}
      <td>{row.owner ?? NONE}</td>
      <td className="number nowrap" title={moment(row.createdAt)}>
        {age(now - row.createdAt)}
      </td>
    </tr>
  );
}
