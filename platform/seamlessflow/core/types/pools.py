"""The pools of machines that projects are granted, and the rule which of them a project may use."""

from collections.abc import Collection, Mapping
from uuid import UUID

OPEN_POOL = "default"  # open to all projects until it is granted to some


def pools_usable(grants: Mapping[str, Collection[UUID]], project_ids: Collection[UUID]) -> frozenset[str]:
    """Return the pools that at least one of the projects may use. `grants`: all pools in question, each with the
    projects that it is granted to."""
    return frozenset(
        pool
        for pool, granted in grants.items()
        if any(project_id in project_ids for project_id in granted) or (pool == OPEN_POOL and not granted)
    )
