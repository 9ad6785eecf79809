"""Decides what a socket may see: signs it in by session or API token, and turns subscriptions into topics."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from django.contrib.auth import HASH_SESSION_KEY, SESSION_KEY
from django.contrib.sessions.models import Session
from django.utils import timezone
from django.utils.crypto import constant_time_compare

from seamlessflow.control_plane.accounts.models import TokenKind, User
from seamlessflow.control_plane.accounts.selectors.access import (
    Access,
    access_of,
    access_within,
    roles_of_users,
    token_find,
    tokens_live,
)
from seamlessflow.control_plane.accounts.services.token_use import token_touch
from seamlessflow.control_plane.cluster.selectors import pools_visible
from seamlessflow.control_plane.common.errors import ApplicationError
from seamlessflow.control_plane.jobs.selectors.jobs import job_get_visible
from seamlessflow.control_plane.live.forests import group_snapshot
from seamlessflow.control_plane.live.frames import (
    MACHINES_TOPIC,
    NO_MACHINES_TOPIC,
    job_topic,
    jobs_topic,
    machines_topic,
    pool_of,
)
from seamlessflow.control_plane.live.selectors import job_snapshot, jobs_snapshot, machines_snapshot
from seamlessflow.control_plane.trajectories.selectors.sessions import group_get_visible
from seamlessflow.core.access.operations import Operation
from seamlessflow.core.protocol.live_events import TopicKind, group_topic
from seamlessflow.core.types.ids import IdKind, parse_id

ACCEPTED = "jobs, machines, job:<id> or group:<id>"


@dataclass(frozen=True, slots=True)
class Credential:
    """The credential that opened a socket: a token or a browser session (in tests only a user)."""

    user_id: UUID
    token_id: UUID | None = None
    session_key: str | None = None


def access_by_token(secret: str) -> Access | None:
    token = token_find(secret=secret, kind=TokenKind.API)
    if token is None or token.user is None or not token.user.is_active:
        return None
    token_touch(token=token)
    return access_of(user=token.user, token=token)


def access_by_session(user: object) -> Access | None:
    return access_of(user=user, token=None) if isinstance(user, User) and user.is_active else None


def accesses_now(credentials: Collection[Credential]) -> dict[Credential, Access]:
    """Return what each credential allows now, without those that were revoked, have expired or were signed out.

    The number of queries does not depend on the number of credentials.
    """
    users = User.objects.in_bulk({one.user_id for one in credentials})
    tokens = tokens_live({one.token_id for one in credentials if one.token_id is not None})
    signed_in = _signed_in({one.session_key for one in credentials if one.session_key is not None}, users)
    roles = roles_of_users(users.values())
    found = {}
    for one in credentials:
        user, token = users.get(one.user_id), tokens.get(one.token_id) if one.token_id else None
        is_gone = (one.token_id is not None and token is None) or (
            one.session_key is not None and one.session_key not in signed_in
        )
        if user is not None and user.is_active and not is_gone:
            found[one] = access_within(user=user, roles=roles[user.id], token=token)
    return found


def _signed_in(keys: Collection[str], users: Mapping[UUID, User]) -> set[str]:
    """Return the browser sessions that are still valid: not ended, and not older than their user's password."""
    standing = set()
    for session in Session.objects.filter(session_key__in=keys, expire_date__gt=timezone.now()):
        data = session.get_decoded()
        shown_id = data.get(SESSION_KEY)
        user = users.get(UUID(shown_id)) if shown_id else None
        if user is not None and constant_time_compare(
            data.get(HASH_SESSION_KEY, ""), user.get_session_auth_hash()
        ):
            standing.add(session.session_key)
    return standing


def topics_of(name: str, access: Access) -> list[str]:
    """Return the topics of one subscription. Raises ApplicationError if the caller may not see them."""
    access.check(Operation.PROJECT_READ)
    if name == "machines":
        topics = [machines_topic(pool) for pool in sorted(pools_visible(access=access))]
        return topics if MACHINES_TOPIC in topics else [NO_MACHINES_TOPIC, *topics]
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


def topic_snapshot(topic: str) -> Mapping[str, Any]:
    """Return the snapshot of a topic that `topics_of` returned."""
    kind, _, identifier = topic.partition(":")
    match kind:
        case TopicKind.JOBS:
            return jobs_snapshot(UUID(identifier))
        case TopicKind.JOB:
            return job_snapshot(parse_id(IdKind.JOB, identifier))
        case TopicKind.GROUP:
            return group_snapshot(parse_id(IdKind.GROUP, identifier))
    return machines_snapshot(pool_of(topic))
