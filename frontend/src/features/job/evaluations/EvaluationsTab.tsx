// The versions evaluated on held-out tasks, newest first, with the best one marked.
import { Link, useSearchParams } from "react-router";
import { useEvaluations, useJob } from "../../../api/queries";
import { Loading } from "../../../ui/Loading";
import { Pager } from "../../../ui/Pager";
import { Problem } from "../../../ui/Problem";
import { StateBadge } from "../../../ui/StateBadge";
import { decimal, duration, integer, moment, NONE, versions } from "../../../ui/words/format";
import type { TabProps } from "../tab";
import { estimatedKs, hasHeldOutTasks } from "./evaluation";

const PAGE_SIZE = 50;
const EVERY_MS = 2000;

export function EvaluationsTab({ jobId, job }: TabProps) {
  const [address, setAddress] = useSearchParams();
  const offset = Number(address.get("offset") ?? 0) || 0;
  const detail = useJob(jobId).data;
  const isEvaluated = hasHeldOutTasks(detail?.spec);
  const query = { limit: PAGE_SIZE, offset };
  const evaluations = useEvaluations(jobId, query, isEvaluated && job.ended_at === null ? EVERY_MS : false);
  const rows = evaluations.data?.results ?? [];
  return (
    <>
      <p className="muted gap-below">
        {isEvaluated
          ? "Some versions are evaluated on held-out tasks, which are never used for training. The best version is kept."
          : detail?.dataset
            ? "This job has no engines to run held-out tasks. To evaluate a version, export it and start a job from it."
            : "This job has no held-out tasks. Set evaluation.tasks in the spec to evaluate versions here."}
      </p>
      <Problem error={evaluations.error} />
      {evaluations.isPending ? <Loading what="Loading evaluations" /> : null}
      {evaluations.data && isEvaluated && rows.length === 0 ? (
        <p className="none">No version has been evaluated yet.</p>
      ) : null}
      {rows.length > 0 ? (
        <EvaluationTable rows={rows} jobId={jobId} best={job.best_version} isOver={job.ended_at !== null} />
      ) : null}
      <Pager
        offset={offset}
        limit={PAGE_SIZE}
        count={evaluations.data?.count ?? 0}
        onMove={(to) => setAddress(to ? { offset: String(to) } : {}, { replace: true })}
      />
    </>
  );
}

type Evaluation = NonNullable<ReturnType<typeof useEvaluations>["data"]>["results"][number];

interface TableProps {
  rows: readonly Evaluation[];
  jobId: string;
  best: number | null;
  isOver: boolean;
}

function EvaluationTable({ rows, jobId, best, isOver }: TableProps) {
  const ks = estimatedKs(rows);
  return (
    <div className="card flush wide">
      <table className="table" data-testid="evaluations">
        <thead>
          <tr>
            <th>Version</th>
            <th>State</th>
            {ks.map((k) => (
              <th key={k} className="number">{`pass@${k}`}</th>
            ))}
            <th className="number">Reward</th>
            <th className="number">Tasks</th>
            <th className="number">Rewarded</th>
            <th className="number">Sampling versions</th>
            <th className="number">Tokens</th>
            <th>Started</th>
            <th className="number">Duration</th>
          </tr>
        </thead>
        <tbody>
          {rows.map((row) => (
            <tr key={row.version}>
              <td className="nowrap">
                <Link to={`/jobs/${jobId}/groups?evaluation=${row.version}`}>Version {integer(row.version)}</Link>{" "}
                {row.version === best ? <span className="badge good">best</span> : null}
              </td>
              <td>
                <StateBadge state={isOver && row.state === "running" ? "unfinished" : row.state} />
              </td>
              {ks.map((k) => (
                <td key={k} className="number">
                  {decimal(row.pass_at_k[k])}
                </td>
              ))}
              <td className="number">{decimal(row.reward_mean)}</td>
              <td className="number">{tasksSaid(row)}</td>
              <td className="number">{integer(row.num_rewarded)}</td>
              <td className="number">{versions(row.min_version, row.max_version)}</td>
              <td className="number">{integer(row.num_sampled_tokens)}</td>
              <td className="nowrap">{moment(Date.parse(row.started_at))}</td>
              <td className="number nowrap">{took(row)}</td>
            </tr>
          ))}
        </tbody>
      </table>
    </div>
  );
}

function tasksSaid(row: Evaluation): string {
  const isWhole = row.num_tasks_done === row.num_tasks;
  return isWhole ? integer(row.num_tasks) : `${integer(row.num_tasks_done)} of ${integer(row.num_tasks)}`;
}

function took(row: Evaluation): string {
  return row.ended_at === null ? NONE : duration(Date.parse(row.ended_at) - Date.parse(row.started_at));
}
