// A group page: the figures, the live forest and the sessions of one task.
import { Link, useParams, useSearchParams } from "react-router";
import { ApiProblem } from "../../api/client";
import { useGroup } from "../../api/queries";
import { useTopic } from "../../live/LiveProvider";
import type { GroupInfoRow } from "../../live/rows";
import { ForestView } from "../../trajectory/drawing/ForestView";
import { useForestSource } from "../../trajectory/forest/useForestSource";
import { versionsDrawn } from "../../trajectory/forest/versionsDrawn";
import { GROUP } from "../../trajectory/wire/topic";
import { NotFound } from "../../ui/NotFound";
import { StateBadge } from "../../ui/StateBadge";
import { useTitle } from "../../ui/useTitle";
import { decimal, integer, versions } from "../../ui/words/format";
import "./group.css";
import { SessionTable } from "./SessionTable";

export default function GroupPage() {
  const { groupId = "" } = useParams();
  const [search] = useSearchParams();
  const state = useTopic(GROUP.name(groupId), GROUP.definition);
  const source = useForestSource(groupId, state);
  const first = useGroup(groupId);
  const group = state?.group;
  useTitle(group ? `Group ${group.index}` : "Group");
  if (first.error instanceof ApiProblem && first.error.status === 404)
    return <NotFound detail="This group does not exist." />;
  const isDropped = group?.state === "dropped";
  const isBare = isDropped && source.isLoaded && source.forest.numAlive === 0;
  return (
    <div className={isBare ? "group-page bare" : "group-page"}>
      <GroupHead group={group} drawn={versionsDrawn(source.forest)} />
      <ForestView key={groupId} source={source} state={state} sessionId={search.get("session") ?? undefined} />
      {/* Why a group was dropped is in its sessions. */}
      <details className="group-task" open={isDropped}>
        <summary>Task and sessions</summary>
        {group ? <pre className="group-task-text">{JSON.stringify(group.task, null, 2)}</pre> : null}
        <SessionTable groupId={groupId} sessions={[...(state?.sessions.values() ?? [])]} />
      </details>
    </div>
  );
}

interface HeadProps {
  group: GroupInfoRow | undefined;
  /** The range of versions in the forest below. */
  drawn: readonly [oldest: number, newest: number] | null;
}

function GroupHead({ group, drawn }: HeadProps) {
  return (
    <header className="group-head">
      <h1>{group ? `Group ${integer(group.index)}` : "Group"}</h1>
      {group ? (
        <>
          <StateBadge state={group.state} />
          <Link to={`/jobs/${group.job}/groups`}>{group.job_name}</Link>
          <GroupFigures group={group} drawn={drawn} />
          {/* Of a group in a batch, the reason only repeats the number of the update. */}
          {group.reason && group.batch === null ? <p className="group-reason muted">{group.reason}</p> : null}
        </>
      ) : null}
    </header>
  );
}

/** Until the group is finalized, the versions shown are those sampled so far. */
function GroupFigures({ group, drawn }: { group: GroupInfoRow; drawn: HeadProps["drawn"] }) {
  const [oldest, newest] =
    group.min_version === null ? (drawn ?? [null, null]) : [group.min_version, group.max_version];
  return (
    <dl className="group-figures">
      <div>
        <dt>Reward</dt>
        <dd>
          {decimal(group.reward_mean)}
          {group.reward_std === null ? null : <small> ± {decimal(group.reward_std)}</small>}
        </dd>
      </div>
      <div>
        <dt>Rewarded</dt>
        <dd>
          {group.num_rewarded} of {group.size}
        </dd>
      </div>
      <div>
        <dt>Versions</dt>
        <dd data-testid="versions">{versions(oldest, newest)}</dd>
      </div>
      <div>
        <dt>{group.evaluation === null ? "Trained in update" : "Evaluates version"}</dt>
        <dd>{integer(group.evaluation ?? group.batch)}</dd>
      </div>
    </dl>
  );
}
