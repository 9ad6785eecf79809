"""What a socket may see: signs in by session or API token, and turns subscriptions into topics of its projects."""

from uuid import UUID

from seamlessflow.control_plane.accounts.models import TokenKind, User
from seamlessflow.control_plane.accounts.selectors import Access, access_of, token_find, token_touch
from seamlessflow.control_plane.common.errors import ApplicationError
from seamlessflow.control_plane.jobs.selectors import job_get_visible
from seamlessflow.control_plane.live.forests import group_snapshot
from seamlessflow.control_plane.live.frames import MACHINES_TOPIC, job_topic, jobs_topic
from seamlessflow.control_plane.live.rows import Row
from seamlessflow.control_plane.live.selectors import job_snapshot, jobs_snapshot, machines_snapshot
from seamlessflow.control_plane.trajectories.selectors import group_get_visible
from seamlessflow.core.protocol.live_events import TopicKind, group_topic
from seamlessflow.core.types.ids import IdKind, parse_id

ACCEPTED = "jobs, machines, job:<id> or group:<id>"


def access_by_token(secret: str) -> Access | None:
    token = token_find(secret=secret, kind=TokenKind.API)
    if token is None or token.user is None or not token.user.is_active:
        return None
    token_touch(token=token)
    return access_of(user=token.user, token=token)


def access_by_session(user: object) -> Access | None:
    return access_of(user=user, token=None) if isinstance(user, User) and user.is_active else None


def topics_of(name: str, access: Access) -> list[str]:
    """Topics behind one subscription. Raises ApplicationError for what does not exist or is not theirs."""
    if name == "machines":
        return [MACHINES_TOPIC]
    if name == "jobs":
        return [jobs_topic(project_id) for project_id in sorted(access.readable)]
    kind, _, shown = name.partition(":")
    try:
        match kind:
            case TopicKind.JOB:
                job_id = parse_id(IdKind.JOB, shown)
                return [job_topic(job_get_visible(access=access, job_id=job_id).id)]
            case TopicKind.GROUP:
                group_id = parse_id(IdKind.GROUP, shown)
                return [group_topic(group_get_visible(access=access, group_id=group_id).id)]
    except ValueError as error:
        raise ApplicationError(str(error)) from error
    raise ApplicationError(f"there is no topic {name!r}; accepted: {ACCEPTED}")


def topic_snapshot(topic: str) -> Row:
    """For a topic that `topics_of` gave."""
    kind, _, identifier = topic.partition(":")
    match kind:
        case TopicKind.JOBS:
            return jobs_snapshot(UUID(identifier))
        case TopicKind.JOB:
            return job_snapshot(parse_id(IdKind.JOB, identifier))
        case TopicKind.GROUP:
            return group_snapshot(parse_id(IdKind.GROUP, identifier))
    return machines_snapshot()
