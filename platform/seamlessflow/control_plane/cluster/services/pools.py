"""Pools of machines and the projects that may use them.

A pool is a name that machines bear. The pool `default` is open to all projects until it is granted to some; every other
pool is open only to the projects that it is granted to. Invariant: each grant and each revocation leaves one event, in
the same transaction; repeating one changes nothing. The scheduler then drains what no longer fits.
"""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

from django.db import transaction
from django.db.models import Count

from seamlessflow.control_plane.accounts.models import Project
from seamlessflow.control_plane.accounts.selectors.access import Access
from seamlessflow.control_plane.cluster.models import Machine, PoolGrant
from seamlessflow.control_plane.cluster.selectors import pools_visible
from seamlessflow.control_plane.common.errors import not_found
from seamlessflow.control_plane.common.models import SubjectType
from seamlessflow.control_plane.common.services import event_record, scheduler_notify
from seamlessflow.core.types.pools import OPEN_POOL


@dataclass(frozen=True, slots=True)
class Pool:
    """`projects`: the slugs it is granted to, as far as the reader may know; `is_open`: all projects may use it."""

    name: str
    num_machines: int
    projects: Sequence[str]
    is_open: bool


def pool_list(*, access: Access) -> list[Pool]:
    """List the pools that the caller sees, by name, with the grants of the caller's projects; operators see all."""
    names = pools_visible(access=access)
    sizes = dict(Machine.objects.filter(pool__in=names).values_list("pool").annotate(Count("id")))
    granted: dict[str, list[str]] = defaultdict(list)
    taken: set[str] = set()
    grants = PoolGrant.objects.select_related("project").order_by("project__slug")
    for grant in grants:
        taken.add(grant.pool)
        if access.is_operator or grant.project_id in access.readable:
            granted[grant.pool].append(grant.project.slug)
    shown = names | taken if access.is_operator else names
    return [
        Pool(name, sizes.get(name, 0), granted[name], is_open=name == OPEN_POOL and name not in taken)
        for name in sorted(shown)
    ]


@transaction.atomic
def pool_grant(*, pool: str, project: Project, reason: str, author: str) -> None:
    """Let a project use a pool. Raises ApplicationError (404) if no machine is in it."""
    if pool != OPEN_POOL and not Machine.objects.filter(pool=pool).exists():
        raise not_found("machine in the pool", pool)
    _, is_new = PoolGrant.objects.get_or_create(pool=pool, project=project)
    if is_new:
        grant_record(kind="pool.granted", pool=pool, project=project, reason=reason, author=author)


@transaction.atomic
def pool_revoke(*, pool: str, project: Project, reason: str, author: str) -> None:
    """End a grant. The project's phases on the pool's machines are drained."""
    num_gone, _ = PoolGrant.objects.filter(pool=pool, project=project).delete()
    if num_gone:
        grant_record(kind="pool.revoked", pool=pool, project=project, reason=reason, author=author)


def grant_record(*, kind: str, pool: str, project: Project, reason: str, author: str) -> None:
    """Leave the event of a grant or a revocation that was just saved."""
    event_record(
        kind=kind,
        subject_type=SubjectType.PROJECT,
        subject_id=project.id,
        project_id=project.id,
        reason=reason,
        author=author,
        data={"pool": pool},
    )
    scheduler_notify(reason=f"{kind}: {pool} and project {project.slug}")
