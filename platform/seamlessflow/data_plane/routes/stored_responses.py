"""`GET /v1/responses/{response}` and its input items: responses that the session keeps.

Takes a session's key and an identifier; returns the response from the rows of this session. Another session's is as
unknown as one that never was. There is no deletion: rows of turns are only ever appended, and they are trained.
"""

from starlette.requests import Request
from starlette.responses import Response

from seamlessflow.data_plane.dialects.responses.read_back import input_items, response_read
from seamlessflow.data_plane.routes.http import credential
from seamlessflow.data_plane.turns.trajectory_manager.live import LiveSession
from seamlessflow.data_plane.turns.trajectory_manager.recorded_turns import RecordedTurns
from seamlessflow.data_plane.turns.trajectory_manager.registry import Registry


class StoredResponses:
    """One per process."""

    def __init__(self, registry: Registry) -> None:
        self._registry = registry

    async def get(self, request: Request) -> Response:
        session, recorded = await self._recorded(request)
        return _json(response_read(session, recorded, request.path_params["response"]))

    async def items(self, request: Request) -> Response:
        _, recorded = await self._recorded(request)
        return _json(input_items(recorded, request.path_params["response"]))

    async def _recorded(self, request: Request) -> tuple[LiveSession, RecordedTurns]:
        session = await self._registry.session_by_key(credential(request.scope))
        return session, RecordedTurns(await self._registry.store.texts(session.key))


def _json(body: bytes) -> Response:
    return Response(body, media_type="application/json")
