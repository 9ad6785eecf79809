"""`POST /v1/messages/count_tokens`: how many tokens a conversation would have as a prompt. Nothing is recorded."""

from functools import partial
from http import HTTPStatus

import msgspec

from seamlessflow.core.protocol.anthropic_messages import TokenCount
from seamlessflow.data_plane.dialects.messages.request import tokens_request_parse
from seamlessflow.data_plane.routes.http import BodyBudget, Receive, Scope, Send, credential, send_whole
from seamlessflow.data_plane.routes.turns import ignored_header
from seamlessflow.data_plane.serving.planning import TurnPlanner
from seamlessflow.data_plane.serving.turn_gate import TurnEntry
from seamlessflow.data_plane.turns.trajectory_manager.live import LiveSession
from seamlessflow.data_plane.turns.trajectory_manager.registry import Registry

COUNT_TOKENS_PATH = "/v1/messages/count_tokens"


class CountTokensRoute:
    """One per process."""

    def __init__(
        self, registry: Registry, bodies: BodyBudget, planner: TurnPlanner, entry: TurnEntry
    ) -> None:
        self._registry = registry
        self._bodies = bodies
        self._planner = planner
        self._entry = entry

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        session = await self._registry.session_by_key(credential(scope))
        await self._entry.serve(session, partial(self._answer, session, scope, receive, send))

    async def _answer(self, session: LiveSession, scope: Scope, receive: Receive, send: Send) -> None:
        with self._bodies.body() as body:
            conversation, ignored = tokens_request_parse(await body.read(scope, receive))
            plan = await self._planner.plan(session, conversation)
        answer = msgspec.json.encode(TokenCount(input_tokens=plan.num_prompt_tokens))
        await send_whole(send, answer, status=HTTPStatus.OK, headers=ignored_header(ignored))
