"""All routes but turns: sessions, runners, trainers, models, health and metrics. Requests are small JSON bodies."""

import time
from http import HTTPStatus
from typing import TypeVar

import msgspec
import psycopg
from prometheus_client import CONTENT_TYPE_LATEST, generate_latest
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from seamlessflow.core.protocol.credentials import InvalidCredential, PhaseClaims, phase_credential_verify
from seamlessflow.core.protocol.data_plane import (
    BatchLeaseRequest,
    GroupLeaseRequest,
    RewardReport,
    SessionOpen,
    SessionsEnded,
    SessionsHeldReply,
    SessionsHeldRequest,
    SessionsRefused,
)
from seamlessflow.core.types.tags import Role
from seamlessflow.data_plane.batches.feed import BatchFeed
from seamlessflow.data_plane.config import Settings
from seamlessflow.data_plane.errors import ApiError, bad_request, param_of
from seamlessflow.data_plane.groups.external import HEADER, ExternalSessions
from seamlessflow.data_plane.groups.feed import GroupFeed
from seamlessflow.data_plane.groups.outcomes import ExternalOutcomes, RunnerOutcomes
from seamlessflow.data_plane.metrics import REFUSALS, REGISTRY
from seamlessflow.data_plane.routes.http import BodyBudget, bearer, credential, while_connected
from seamlessflow.data_plane.routes.models import model_list, model_named
from seamlessflow.data_plane.routes.refusals import spoken_dialect, unknown_route, wrong_method
from seamlessflow.data_plane.routes.stored_responses import StoredResponses
from seamlessflow.data_plane.store.connection import DATABASE_AWAY, database_away
from seamlessflow.data_plane.turns.held_time import HeldTime
from seamlessflow.data_plane.turns.trajectory_manager.registry import Registry

Body = TypeVar("Body", bound=msgspec.Struct)


class JsonRoutes:
    """Answers these routes; one per process."""

    def __init__(
        self,
        settings: Settings,
        registry: Registry,
        held: HeldTime,
        groups: GroupFeed,
        runner_outcomes: RunnerOutcomes,
        batches: BatchFeed,
        external: ExternalSessions,
        outcomes: ExternalOutcomes,
        bodies: BodyBudget,
    ) -> None:
        self._settings = settings
        self._registry = registry
        self._held = held
        self._groups = groups
        self._runner_outcomes = runner_outcomes
        self._batches = batches
        self._external = external
        self._outcomes = outcomes
        self._bodies = bodies
        self._responses = StoredResponses(registry)

    def app(self) -> Starlette:
        return Starlette(
            routes=[
                Route("/healthz", self.healthz),
                Route("/metrics", self.metrics),
                Route("/v1/models", self.models),
                Route("/v1/models/{model:path}", self.model),
                Route("/v1/responses/{response}", self._responses.get),
                Route("/v1/responses/{response}/input_items", self._responses.items),
                Route("/v1/sessions", self.session_open, methods=["POST"]),
                Route("/v1/sessions/{session}/reward", self.session_reward, methods=["POST"]),
                Route("/v1/sessions/{session}/close", self.session_close, methods=["POST"]),
                Route("/runner/v1/groups/lease", self.groups_lease, methods=["POST"]),
                Route("/runner/v1/sessions/ended", self.sessions_ended, methods=["POST"]),
                Route("/runner/v1/sessions/held", self.sessions_held, methods=["POST"]),
                Route("/trainer/v1/batches/lease", self.batches_lease, methods=["POST"]),
            ],
            exception_handlers={
                ApiError: _refused,
                HTTPException: _no_route,
                psycopg.DataError: _unstorable,
                **dict.fromkeys(DATABASE_AWAY, _database_away),
            },
        )

    async def healthz(self, request: Request) -> Response:
        return _json({"status": "ok"})

    async def metrics(self, request: Request) -> Response:
        return Response(generate_latest(REGISTRY), headers={"content-type": CONTENT_TYPE_LATEST})

    async def models(self, request: Request) -> Response:
        session = await self._registry.session_by_key(credential(request.scope))
        return _json(model_list(request.scope, session))

    async def model(self, request: Request) -> Response:
        session = await self._registry.session_by_key(credential(request.scope))
        return _json(model_named(request.scope, session, request.path_params["model"]))

    async def session_open(self, request: Request) -> Response:
        await self._external.authenticate(bearer(request.scope))  # before its body is read
        body = await self._body(request, SessionOpen)
        key = request.headers.get(HEADER)
        opened, is_new = await self._external.open(bearer(request.scope), body, key=key)
        return _json(opened, status=HTTPStatus.CREATED if is_new else HTTPStatus.OK)

    async def session_reward(self, request: Request) -> Response:
        session = await self._outcomes.gradable(bearer(request.scope), request.path_params["session"])
        over = await self._outcomes.reward(session, await self._body(request, RewardReport))
        return Response(status_code=HTTPStatus.NO_CONTENT) if over is None else _json(over)

    async def session_close(self, request: Request) -> Response:
        session = await self._outcomes.gradable(bearer(request.scope), request.path_params["session"])
        await self._outcomes.close(session)
        return Response(status_code=HTTPStatus.NO_CONTENT)

    async def groups_lease(self, request: Request) -> Response:
        claims = self._claims(request, Role.AGENT)
        leasing = self._groups.lease(claims, await self._body(request, GroupLeaseRequest))
        return _json(await while_connected(request.receive, leasing))

    async def sessions_ended(self, request: Request) -> Response:
        claims = self._claims(request, Role.AGENT)
        body = await self._body(request, SessionsEnded)
        refused = await self._runner_outcomes.take(claims, body.finishes)
        return _json(SessionsRefused(refused={key: refusal.message for key, refusal in refused.items()}))

    async def sessions_held(self, request: Request) -> Response:
        claims = self._claims(request, Role.AGENT)
        body = await self._body(request, SessionsHeldRequest)
        held, now_s = await self._held.held_s(claims.job_id, body.session_ids), time.monotonic()
        for session_id in held:
            held[session_id] += self._registry.doubted_s(session_id, claims.job_id, now_s)
        return _json(SessionsHeldReply(held_s=held))

    async def batches_lease(self, request: Request) -> Response:
        claims = self._claims(request, Role.TRAIN)
        payload = await self._batches.lease(claims, await self._body(request, BatchLeaseRequest))
        if payload is None:
            return Response(status_code=HTTPStatus.NO_CONTENT)
        return Response(payload, media_type="application/octet-stream")

    def _claims(self, request: Request, role: Role) -> PhaseClaims:
        try:
            claims = phase_credential_verify(
                bearer(request.scope), secret=self._settings.secret_key, now_s=time.time()
            )
        except InvalidCredential as error:
            raise ApiError(HTTPStatus.UNAUTHORIZED, f"{error}.", code="invalid_credential") from error
        if claims.role is not role:
            raise ApiError(
                HTTPStatus.FORBIDDEN,
                f"This route needs the credential of a phase with role {role}, got one with role {claims.role}.",
            )
        return claims

    async def _body(self, request: Request, kind: type[Body]) -> Body:
        """Read the body of a caller whose credential was checked; no other caller may use the gateway's memory."""
        with self._bodies.body() as body:
            raw = await body.read(request.scope, request.receive)
            return _decode(raw, kind)


def _decode(raw: bytes, kind: type[Body]) -> Body:
    try:
        return msgspec.json.decode(raw, type=kind)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        message = f"The request body is not a valid {kind.__name__}: {error}."
        raise bad_request(message, param=param_of(str(error))) from error
    except RecursionError as error:
        raise bad_request("The request body is nested too deeply.") from error


async def _refused(request: Request, error: Exception) -> Response:
    assert isinstance(error, ApiError)
    REFUSALS.labels(str(int(error.status))).inc()
    dialect = spoken_dialect(request.scope)
    if dialect is not None:
        body, status = dialect.error(error), dialect.status(error)
        return Response(body, status_code=status, headers=error.headers, media_type="application/json")
    return Response(
        error.problem, status_code=error.status, headers=error.headers, media_type="application/problem+json"
    )


async def _no_route(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    allowed = (error.headers or {}).get("Allow")
    refusal = wrong_method(request.scope, allowed) if allowed else unknown_route(request.scope)
    return await _refused(request, refusal)


async def _database_away(request: Request, _: Exception) -> Response:
    return await _refused(request, database_away())


async def _unstorable(request: Request, error: Exception) -> Response:
    """Answer 400 for a value that the field checks let pass and the database refuses: it is the caller's."""
    first = str(error).partition("\n")[0]
    return await _refused(request, bad_request(f"A value in the request cannot be stored: {first}."))


def _json(content: object, *, status: int = HTTPStatus.OK) -> Response:
    return Response(msgspec.json.encode(content), status_code=status, media_type="application/json")
