"""Reads which pools of machines projects may use. Every face and the scheduler ask here; `core.types.pools` decides."""

from collections import defaultdict
from collections.abc import Collection, Mapping
from uuid import UUID

from seamlessflow.control_plane.cluster.models import PoolGrant
from seamlessflow.core.types.pools import OPEN_POOL, pools_usable


def pools_of(project_ids: Collection[UUID]) -> frozenset[str]:
    """Return the pools that at least one of the projects may use, with the open pool even if it has no machine."""
    return pools_usable(grants_load(), project_ids)


def grants_load() -> Mapping[str, Collection[UUID]]:
    """Return the projects of each pool that is granted, and of the open pool."""
    granted: dict[str, set[UUID]] = defaultdict(set, {OPEN_POOL: set()})
    for pool, project_id in PoolGrant.objects.values_list("pool", "project_id"):
        granted[pool].add(project_id)
    return granted
