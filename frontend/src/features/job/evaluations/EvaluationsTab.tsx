// The versions evaluated on held-out tasks, newest first, with the best one marked.
import { Link } from "react-router";
import { useEvaluations, useJob } from "../../../api/queries";
import { StateBadge } from "../../../ui/StateBadge";
import type { Columns } from "../../../ui/table/columns";
import { PagedTable, usePage } from "../../../ui/table/PagedTable";
import { decimal, duration, integer, moment, NONE, versions } from "../../../ui/words/format";
import type { TabProps } from "../tab";
import { estimatedKs, hasHeldOutTasks } from "./evaluation";

const PAGE_SIZE = 50;
const EVERY_MS = 2000;

export function EvaluationsTab({ jobId, job }: TabProps) {
  const { page } = usePage(PAGE_SIZE);
  const detail = useJob(jobId).data;
  const isEvaluated = hasHeldOutTasks(detail?.spec);
  const isOver = job.ended_at !== null;
  const evaluations = useEvaluations(jobId, page, isEvaluated && !isOver ? EVERY_MS : false);
  return (
    <>
      <p className="muted gap-below">
        {isEvaluated
          ? "Some versions are evaluated on held-out tasks, which are never used for training. The best version is kept."
          : detail?.dataset
            ? "This job has no engines to run held-out tasks. To evaluate a version, export it and start a job from it."
            : "This job has no held-out tasks. Set evaluation.tasks in the spec to evaluate versions here."}
      </p>
      <PagedTable
        read={evaluations}
        what="evaluations"
        none={isEvaluated ? "No version has been evaluated yet." : null}
        limit={PAGE_SIZE}
        columns={columnsOf(evaluations.data?.results ?? [], jobId, job.best_version, isOver)}
        keyOf={(row) => row.version}
        testId="evaluations"
      />
    </>
  );
}

type Evaluation = NonNullable<ReturnType<typeof useEvaluations>["data"]>["results"][number];

function columnsOf(
  rows: readonly Evaluation[],
  jobId: string,
  best: number | null,
  isOver: boolean,
): Columns<Evaluation> {
  return [
    {
      head: "Version",
      className: "nowrap",
      cell: ({ version }) => (
        <>
          <Link to={`/jobs/${jobId}/groups?evaluation=${version}`}>Version {integer(version)}</Link>{" "}
          {version === best ? <span className="badge good">best</span> : null}
        </>
      ),
    },
    {
      head: "State",
      cell: ({ state }) => <StateBadge state={isOver && state === "running" ? "unfinished" : state} />,
    },
    ...estimatedKs(rows).map((k) => ({
      head: `pass@${k}`,
      isNumber: true,
      cell: (row: Evaluation) => decimal(row.pass_at_k[k]),
    })),
    { head: "Reward", isNumber: true, cell: (row) => decimal(row.reward_mean) },
    { head: "Tasks", isNumber: true, cell: tasksText },
    { head: "Rewarded", isNumber: true, cell: (row) => integer(row.num_rewarded) },
    { head: "Sampling versions", isNumber: true, cell: (row) => versions(row.min_version, row.max_version) },
    { head: "Tokens", isNumber: true, cell: (row) => integer(row.num_sampled_tokens) },
    { head: "Started", className: "nowrap", cell: (row) => moment(Date.parse(row.started_at)) },
    { head: "Duration", isNumber: true, className: "nowrap", cell: took },
  ];
}

function tasksText(row: Evaluation): string {
  const isWhole = row.num_tasks_done === row.num_tasks;
  return isWhole ? integer(row.num_tasks) : `${integer(row.num_tasks_done)} of ${integer(row.num_tasks)}`;
}

function took(row: Evaluation): string {
  return row.ended_at === null ? NONE : duration(Date.parse(row.ended_at) - Date.parse(row.started_at));
}
