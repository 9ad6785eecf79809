"""The paths of Google's Gemini API, which name a model and an action, as `/v1beta/models/x:countTokens`.

Takes the path and query of a request; returns the action and, for a stream, its form. The name of the model is ignored,
as in the other APIs. Clients append `/v1beta` to their base URL, which may or may not end with `/v1`.
"""

import re
from functools import partial
from http import HTTPStatus
from typing import Any
from urllib.parse import parse_qs

import msgspec

from seamlessflow.core.protocol.google_gemini import GeminiModel, GeminiModels, GeminiTokens
from seamlessflow.data_plane.dialects.dialect import Dialect
from seamlessflow.data_plane.dialects.gemini.dialect import GeminiDialect
from seamlessflow.data_plane.dialects.gemini.request import gemini_tokens_parse
from seamlessflow.data_plane.errors import ApiError
from seamlessflow.data_plane.routes.http import BodyBudget, Receive, Scope, Send, credential, send_whole
from seamlessflow.data_plane.serving.planning import TurnPlanner
from seamlessflow.data_plane.serving.turn_gate import TurnEntry
from seamlessflow.data_plane.turns.trajectory_manager.live import LiveSession
from seamlessflow.data_plane.turns.trajectory_manager.registry import Registry

_PATH = re.compile(r"(?:/v1)?/(?:v1beta|v1alpha)/models(?:/(?P<model>[^:]+?)(?::(?P<action>\w+))?)?/?")
_API = re.compile(r"(?:/v1)?/(?:v1beta|v1alpha)/")
WHOLE, EVENTS, LIST = (
    GeminiDialect(),
    GeminiDialect(is_streamed=True),
    GeminiDialect(is_streamed=True, is_list=True),
)
GEMINI_DIALECTS: dict[str, Dialect[Any]] = {"whole": WHOLE, "events": EVENTS, "list": LIST}
MODELS, TOKENS = "models", "countTokens"


def gemini_action(scope: Scope) -> str | None:
    """Return what a request of Google's API asks for: a key of `GEMINI_DIALECTS`, `MODELS` or `TOKENS`.

    None: the path is not of this API, or asks for nothing that the gateway has.
    """
    found = _PATH.fullmatch(scope["path"])
    if found is None:
        return None
    if scope["method"] == "GET":
        return MODELS if found["action"] is None else None
    is_events = parse_qs(scope.get("query_string", b"").decode("latin-1")).get("alt") == ["sse"]
    actions = {
        "generateContent": "whole",
        "streamGenerateContent": "events" if is_events else "list",
        "countTokens": TOKENS,
    }
    return actions.get(found["action"] or "")


def is_of_gemini(path: str) -> bool:
    return _API.match(path) is not None


class GeminiTokensRoute:
    """`countTokens`: how many tokens a conversation would have as a prompt. Nothing is recorded. One per process."""

    def __init__(
        self, registry: Registry, bodies: BodyBudget, planner: TurnPlanner, entry: TurnEntry
    ) -> None:
        self._registry, self._bodies, self._planner, self._entry = registry, bodies, planner, entry

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        session = await self._registry.session_by_key(credential(scope))
        await self._entry.serve(session, partial(self._answer, session, scope, receive, send))

    async def _answer(self, session: LiveSession, scope: Scope, receive: Receive, send: Send) -> None:
        with self._bodies.body() as body:
            conversation, _ = gemini_tokens_parse(await body.read(scope, receive))
            plan = await self._planner.plan(session, conversation)
        await send_whole(send, msgspec.json.encode(GeminiTokens(total_tokens=plan.num_prompt_tokens)))


class GeminiModelsRoute:
    """`GET /v1beta/models` and `/v1beta/models/{model}`: a session sees one model, its job. One per process."""

    def __init__(self, registry: Registry) -> None:
        self._registry = registry

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        session = await self._registry.session_by_key(credential(scope))
        found = _PATH.fullmatch(scope["path"])
        name = None if found is None else found["model"]
        card = _card(session)
        if name is not None and name != session.job.name:
            message = f"The model {name!r} does not exist; the model of this session is {session.job.name!r}."
            raise ApiError(HTTPStatus.NOT_FOUND, message, param="model", code="model_not_found")
        await send_whole(send, msgspec.json.encode(GeminiModels(models=[card]) if name is None else card))


def _card(session: LiveSession) -> GeminiModel:
    spec, name = session.job.spec, session.job.name
    return GeminiModel(
        name=f"models/{name}",
        display_name=name,
        input_token_limit=spec.model.max_model_len,
        output_token_limit=min(spec.model.max_model_len, spec.rollout.max_tokens_per_turn),
    )
