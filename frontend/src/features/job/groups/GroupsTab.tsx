// The groups of a job, page by page. The page is refreshed while the job runs.
import { Link, useSearchParams } from "react-router";
import { useGroups, useJob } from "../../../api/queries";
import { Segments } from "../../../ui/fields/Segments";
import { Loading } from "../../../ui/Loading";
import { Pager } from "../../../ui/Pager";
import { Problem } from "../../../ui/Problem";
import { StateBadge } from "../../../ui/StateBadge";
import { decimal, integer, moment, NONE, versions } from "../../../ui/words/format";
import { isOneOf } from "../../../values/guards";
import { SourceLinks } from "../dataset/Dataset";
import type { TabProps } from "../tab";

const PAGE_SIZE = 50;
const EVERY_MS = 2000;
const FILTERS = ["all", "open", "ready", "batched", "dropped"] as const;

export function GroupsTab({ jobId, job }: TabProps) {
  const [address, setAddress] = useSearchParams();
  const asked = address.get("state");
  const filter = isOneOf(FILTERS, asked) ? asked : "all";
  const offset = Number(address.get("offset") ?? 0) || 0;
  const state = filter === "all" ? undefined : filter;
  const measured = address.get("evaluation");
  const evaluation = measured === null ? undefined : Number(measured) || 0;
  const query = { limit: PAGE_SIZE, offset, state, evaluation };
  const groups = useGroups(jobId, query, job.ended_at === null ? EVERY_MS : false);
  const change = (next: Record<string, string>) => setAddress(next, { replace: true });
  const rows = groups.data?.results ?? [];
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
        <Segments
          legend="State"
          values={FILTERS}
          value={filter}
          onChange={(name) => change(name === "all" ? {} : { state: name })}
        />
        <p className="muted self-center">A group holds the sessions of one task.</p>
      </div>
      <Problem error={groups.error} />
      {groups.isPending ? <Loading what="Loading groups" /> : null}
      {groups.data && rows.length === 0 ? (
        <p className="none">{filter === "all" ? "No task has started yet." : `No groups are ${filter}.`}</p>
      ) : null}
      {rows.length > 0 ? <GroupTable rows={rows} /> : null}
      <Pager
        offset={offset}
        limit={PAGE_SIZE}
        count={groups.data?.count ?? 0}
        onMove={(to) =>
          change({
            ...(measured ? { evaluation: measured } : {}),
            ...(state ? { state } : {}),
            ...(to ? { offset: String(to) } : {}),
          })
        }
      />
    </>
  );
}

type Group = NonNullable<ReturnType<typeof useGroups>["data"]>["results"][number];

function GroupTable({ rows }: { rows: readonly Group[] }) {
  return (
    <div className="card flush wide">
      <table className="table" data-testid="groups">
        <thead>
          <tr>
            <th>Group</th>
            <th>State</th>
            <th className="number">Reward</th>
            <th className="number">Rewarded</th>
            <th className="number">Versions</th>
            <th className="number">Update</th>
            <th className="number">Task</th>
            <th>Started</th>
            <th>Reason</th>
          </tr>
        </thead>
        <tbody>
          {rows.map((group) => (
            <tr key={group.id}>
              <td>
                <Link to={`/groups/${group.id}`}>Group {integer(group.index)}</Link>
              </td>
              <td>
                <StateBadge state={group.state} />
              </td>
              <td className="number">{rewardSaid(group)}</td>
              <td className="number">
                {group.num_rewarded} of {group.size}
              </td>
              <td className="number">{versions(group.min_version, group.max_version)}</td>
              <td className="number">{integer(group.batch_number)}</td>
              <td className="number">{integer(group.task_index)}</td>
              <td className="nowrap">{moment(Date.parse(group.created_at))}</td>
              <td className="why">{group.reason || NONE}</td>
            </tr>
          ))}
        </tbody>
      </table>
    </div>
  );
}

function rewardSaid(group: Group): string {
  return group.reward_mean === null ? NONE : `${decimal(group.reward_mean, 2)} ± ${decimal(group.reward_std, 2)}`;
}
