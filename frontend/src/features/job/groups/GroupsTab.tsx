// The groups of a job, page by page. The page is refreshed while the job runs.
import { Link } from "react-router";
import { useGroups, useJob } from "../../../api/queries";
import { Segments } from "../../../ui/fields/Segments";
import { StateBadge } from "../../../ui/StateBadge";
import type { Columns } from "../../../ui/table/columns";
import { PagedTable, usePage } from "../../../ui/table/PagedTable";
import { oneOf, TEXT, useViewState } from "../../../ui/useViewState";
import { decimal, integer, moment, NONE, versions } from "../../../ui/words/format";
import { SourceLinks } from "../dataset/Dataset";
import type { TabProps } from "../tab";

const PAGE_SIZE = 50;
const EVERY_MS = 2000;
const FILTERS = ["all", "open", "ready", "batched", "dropped"] as const;
const FILTER = oneOf(FILTERS);

export function GroupsTab({ jobId, job }: TabProps) {
  const [filter, setFilter] = useViewState("state", FILTER);
  const [measured] = useViewState("evaluation", TEXT);
  const { page } = usePage(PAGE_SIZE);
  const state = filter === "all" ? undefined : filter;
  const evaluation = measured === "" ? undefined : Number(measured) || 0;
  const groups = useGroups(jobId, { ...page, state, evaluation }, job.ended_at === null ? EVERY_MS : false);
  const dataset = useJob(jobId).data?.dataset;
  if (dataset)
    return (
      <p className="none" data-testid="no-groups">
        This job does not sample. It trains on groups of <SourceLinks dataset={dataset} />.
      </p>
    );
  return (
    <>
      {evaluation === undefined ? null : (
        <p className="note gap-below">
          Held-out tasks that evaluated version {integer(evaluation)}. None of them are used for training.{" "}
          <Link to={`/jobs/${jobId}/groups`}>Show the training groups</Link>
        </p>
      )}
      <div className="toolbar" hidden={evaluation !== undefined}>
        <Segments legend="State" values={FILTERS} value={filter} onChange={setFilter} />
        <p className="muted self-center">A group contains the sessions of one task.</p>
      </div>
      <PagedTable
        read={groups}
        what="groups"
        none={filter === "all" ? "No task has started yet." : `No groups are ${filter}.`}
        limit={PAGE_SIZE}
        columns={COLUMNS}
        keyOf={(group) => group.id}
        testId="groups"
      />
    </>
  );
}

type Group = NonNullable<ReturnType<typeof useGroups>["data"]>["results"][number];

const COLUMNS: Columns<Group> = [
  {
    head: "Group",
    className: "nowrap",
    cell: (group) => <Link to={`/groups/${group.id}`}>Group {integer(group.index)}</Link>,
  },
  { head: "State", cell: (group) => <StateBadge state={group.state} /> },
  { head: "Reward", className: "nowrap", isNumber: true, cell: rewardText },
  { head: "Rewarded", isNumber: true, cell: (group) => `${group.num_rewarded} of ${group.size}` },
  { head: "Versions", isNumber: true, cell: (group) => versions(group.min_version, group.max_version) },
  { head: "Update", isNumber: true, cell: (group) => integer(group.batch_number) },
  { head: "Task", isNumber: true, cell: (group) => integer(group.task_index) },
  { head: "Started", className: "nowrap", cell: (group) => moment(Date.parse(group.created_at)) },
  { head: "Reason", className: "why", cell: (group) => group.reason || NONE },
];

function rewardText(group: Group): string {
  return group.reward_mean === null ? NONE : `${decimal(group.reward_mean, 2)} ± ${decimal(group.reward_std, 2)}`;
}
