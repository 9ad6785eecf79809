"""Finds the projects that an API token gives access to, for the routes of programs outside the platform.

It takes the bearer token of a request and returns the projects, or refuses. The rule itself is `token_projects`.
"""

from uuid import UUID

from seamlessflow.data_plane.store.connection import Pool
from seamlessflow.data_plane.store.tokens import token_projects


async def projects_require(pool: Pool, token: str) -> frozenset[UUID]:
    """Return the projects in which an API token may open and grade sessions. Raises ApiError (401, 403)."""
    async with pool.connection() as connection:
        return await token_projects(connection, token)
