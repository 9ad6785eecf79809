"""The HTTP surface as an ASGI application: generation, control, health, metrics and an OpenAPI description.

`EngineApp` answers requests whose body was read, and reads those that reach it directly. `EngineServer` starts an
engine and serves it. Errors leave in vLLM's shape: `{"error": {"message", "type", "param", "code"}}`.
"""

import logging
from collections.abc import Iterable
from http import HTTPStatus
from typing import Any

import msgspec

from seamlessflow.runtime.http.bodies import BodyAccount, BodyRefused, ClientGone
from seamlessflow.runtime.http.limits import MAX_ENGINE_BODIES_BYTES, MAX_ENGINE_BODY_BYTES, HttpLimits
from seamlessflow.runtime.http.server import HttpServer
from seamlessflow_workers.rollout.serving.control_routes import ControlRoutes, ProtocolOrderError
from seamlessflow_workers.rollout.serving.exchange import (
    JSON,
    Answer,
    Handler,
    Receive,
    Reply,
    Request,
    Scope,
    Send,
    query_of,
    while_connected,
)
from seamlessflow_workers.rollout.serving.generation_routes import GenerationRoutes
from seamlessflow_workers.rollout.serving.payloads import error_answer, error_content, json_answer
from seamlessflow_workers.rollout.serving.request import GenerateRequest, InvalidRequestError
from seamlessflow_workers.rollout.serving.served_engine import ServedEngine
from seamlessflow_workers.weights.offers import WeightsError

logger = logging.getLogger(__name__)

ENGINE_VERSION = "0.1.0"
METRICS_CONTENT_TYPE = "text/plain; version=0.0.4"
DRAIN_S = 120.0  # for a client to read a chunk of its answer


class EngineApp:
    """Answers requests; it has no state of its own but the account of their bodies."""

    def __init__(self, engine: ServedEngine) -> None:
        self._routes: dict[tuple[str, str], Handler] = {
            **GenerationRoutes(engine).table(),
            **ControlRoutes(engine).table(),
            **_InfoRoutes(engine).table(),
        }
        description = json_answer(_describe(self._routes))

        async def openapi(_request: Request) -> Answer:
            return description

        self._routes["GET", "/openapi.json"] = openapi
        self.bodies = BodyAccount(
            max_body_bytes=MAX_ENGINE_BODY_BYTES, max_total_bytes=MAX_ENGINE_BODIES_BYTES
        )

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await while_connected(scope, self._read_and_answer(scope, receive, send))

    async def _read_and_answer(self, scope: Scope, receive: Receive, send: Send) -> None:
        reply = Reply(send)
        try:
            with self.bodies.body() as body:
                data = await body.read(scope, receive)
        except BodyRefused as error:
            await reply.whole(error_answer(status=error.status, message=error.detail))
        except ClientGone:
            return
        else:
            await self.answer(scope, data, reply)

    async def answer(self, scope: Scope, body: bytes, reply: Reply) -> None:
        """Answer a request that has arrived whole."""
        route = scope["method"], scope["path"]
        handler = self._routes.get(route)
        if handler is None:
            await reply.whole(_no_route(*route, self._routes))
            return
        answer = await _answered(handler, Request(body, query_of(scope), reply))
        if answer is not None:
            await reply.whole(answer)


class EngineServer:
    """Starts with its engine, and stops with it."""

    def __init__(self, engine: ServedEngine) -> None:
        self.app = EngineApp(engine)
        self.http = HttpServer(self.app, server_limits())
        self._engine = engine

    async def start(self, host: str = "127.0.0.1", port: int = 0) -> str:
        """Start the engine and listen on this port, or on a free one; return the base URL."""
        self._engine.start()
        return f"http://{host}:{await self.http.listen(host, port)}"

    async def stop(self) -> None:
        await self.http.stop()
        await self._engine.stop()


def server_limits() -> HttpLimits:
    return HttpLimits(refusal=_refusal, drain_s=DRAIN_S)


def _refusal(status: HTTPStatus, message: str) -> tuple[bytes, bytes]:
    return JSON.encode(), msgspec.json.encode(error_content(status=status, message=message))


def _no_route(method: str, path: str, routes: Iterable[tuple[str, str]]) -> Answer:
    others = sorted(other for other, known in routes if known == path)
    if not others:
        return error_answer(status=HTTPStatus.NOT_FOUND, message=f"there is no {path}")
    message = f"{path} takes {' or '.join(others)}, not {method}"
    return error_answer(status=HTTPStatus.METHOD_NOT_ALLOWED, message=message)


async def _answered(handler: Handler, request: Request) -> Answer | None:
    try:
        return await handler(request)
    except InvalidRequestError as error:
        return error_answer(
            status=HTTPStatus.BAD_REQUEST, kind="BadRequestError", message=str(error), field=error.field
        )
    except ProtocolOrderError as error:
        return error_answer(status=HTTPStatus.BAD_REQUEST, kind="BadRequestError", message=str(error))
    except WeightsError as error:
        return error_answer(
            status=HTTPStatus.INTERNAL_SERVER_ERROR, kind="InternalServerError", message=str(error)
        )
    except Exception as error:
        logger.exception("a handler failed")
        return error_answer(
            status=HTTPStatus.INTERNAL_SERVER_ERROR, kind="InternalServerError", message=repr(error)
        )


class _InfoRoutes:
    def __init__(self, engine: ServedEngine) -> None:
        self._engine = engine

    def table(self) -> dict[tuple[str, str], Handler]:
        return {
            ("GET", "/health"): self.health,
            ("GET", "/version"): self.version,
            ("GET", "/metrics"): self.metrics,
            ("GET", "/v1/models"): self.models,
        }

    async def health(self, _request: Request) -> Answer:
        is_dead = self._engine.failure is not None
        return Answer(status=HTTPStatus.SERVICE_UNAVAILABLE if is_dead else HTTPStatus.OK)

    async def version(self, _request: Request) -> Answer:
        return json_answer({"version": ENGINE_VERSION, "engine": self._engine.kind})

    async def metrics(self, _request: Request) -> Answer:
        return Answer(self._engine.metrics().encode(), content_type=METRICS_CONTENT_TYPE)

    async def models(self, _request: Request) -> Answer:
        card = {
            "id": self._engine.settings.model_name,
            "object": "model",
            "created": 0,
            "owned_by": "seamlessflow",
            "max_model_len": self._engine.limits.max_model_len,
        }
        return json_answer({"object": "list", "data": [card]})


def _describe(routes: Iterable[tuple[str, str]]) -> dict[str, Any]:
    """Return an OpenAPI document from which a client can see the routes and the fields of a request."""
    schemas, components = msgspec.json.schema_components(
        [GenerateRequest], ref_template="#/components/schemas/{name}"
    )
    body = {"content": {"application/json": {"schema": schemas[0]}}}
    paths: dict[str, dict[str, Any]] = {}
    for method, path in routes:
        operation: dict[str, Any] = {"responses": {"200": {"description": "OK"}}}
        if path == "/inference/v1/generate":
            operation["requestBody"] = body
        paths.setdefault(path, {})[method.lower()] = operation
    return {
        "openapi": "3.1.0",
        "info": {"title": "SeamlessFlow engine", "version": ENGINE_VERSION},
        "paths": paths,
        "components": {"schemas": components},
    }
