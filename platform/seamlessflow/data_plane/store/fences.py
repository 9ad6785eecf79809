"""Checks whether a caller still holds its phase, within the transaction that acts on the answer.

The check takes the claims of a phase's credential. It returns nothing, or raises the refusal that ends what an old
fence began.
"""

from http import HTTPStatus

from seamlessflow.core.protocol.credentials import PhaseClaims
from seamlessflow.data_plane.errors import ApiError
from seamlessflow.data_plane.store.connection import Connection
from seamlessflow.data_plane.store.jobs import phase_is_live


async def phase_require_live(connection: Connection, claims: PhaseClaims) -> None:
    """Raises ApiError (409) unless the phase still runs under its fence."""
    if not await phase_is_live(connection, claims):
        raise ApiError(HTTPStatus.CONFLICT, "The phase is over or its fence is old.", code="stale_fence")
