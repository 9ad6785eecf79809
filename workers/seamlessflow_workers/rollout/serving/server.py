"""The HTTP surface as an aiohttp application: generation, control, health, metrics and an OpenAPI description.

Errors leave in vLLM's shape: `{"error": {"message", "type", "param", "code"}}`.
"""

import logging
from collections.abc import Awaitable, Callable
from http import HTTPStatus
from typing import Any

import msgspec
from aiohttp import web

from seamlessflow_workers.rollout.serving.control_routes import ControlRoutes, ProtocolOrderError
from seamlessflow_workers.rollout.serving.generation_routes import GenerationRoutes
from seamlessflow_workers.rollout.serving.payloads import error_response, json_response
from seamlessflow_workers.rollout.serving.request import GenerateRequest, InvalidRequestError
from seamlessflow_workers.rollout.serving.served_engine import ServedEngine
from seamlessflow_workers.weights.offers import WeightsError

logger = logging.getLogger(__name__)

ENGINE_VERSION = "0.1.0"
METRICS_CONTENT_TYPE = "text/plain; version=0.0.4"
MAX_BODY_BYTES = 64 * 1024 * 1024

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


def build_app(engine: ServedEngine) -> web.Application:
    """Build the application. The engine starts and stops with it."""
    app = web.Application(client_max_size=MAX_BODY_BYTES, middlewares=[_errors])
    routes = [
        *GenerationRoutes(engine).table(),
        *ControlRoutes(engine).table(),
        *_InfoRoutes(engine).table(),
    ]
    description = _describe(routes)

    async def openapi(_request: web.Request) -> web.Response:
        return json_response(description)

    app.add_routes([*routes, web.get("/openapi.json", openapi)])

    async def on_startup(_app: web.Application) -> None:
        engine.start()

    async def on_cleanup(_app: web.Application) -> None:
        await engine.stop()

    app.on_startup.append(on_startup)
    app.on_cleanup.append(on_cleanup)
    return app


@web.middleware
async def _errors(request: web.Request, handler: Handler) -> web.StreamResponse:
    try:
        return await handler(request)
    except InvalidRequestError as error:
        return error_response(
            status=HTTPStatus.BAD_REQUEST, kind="BadRequestError", message=str(error), field=error.field
        )
    except ProtocolOrderError as error:
        return error_response(status=HTTPStatus.BAD_REQUEST, kind="BadRequestError", message=str(error))
    except WeightsError as error:
        return error_response(
            status=HTTPStatus.INTERNAL_SERVER_ERROR, kind="InternalServerError", message=str(error)
        )
    except web.HTTPException as error:
        return error_response(status=HTTPStatus(error.status), message=error.reason)
    except ConnectionError:
        raise  # the client is gone: there is no one to answer
    except Exception as error:
        logger.exception("a handler failed")
        return error_response(
            status=HTTPStatus.INTERNAL_SERVER_ERROR, kind="InternalServerError", message=repr(error)
        )


class _InfoRoutes:
    def __init__(self, engine: ServedEngine) -> None:
        self._engine = engine

    def table(self) -> list[web.RouteDef]:
        return [
            web.get("/health", self.health),
            web.get("/version", self.version),
            web.get("/metrics", self.metrics),
            web.get("/v1/models", self.models),
        ]

    async def health(self, _request: web.Request) -> web.Response:
        return web.Response(status=503 if self._engine.failure is not None else 200)

    async def version(self, _request: web.Request) -> web.Response:
        return json_response({"version": ENGINE_VERSION, "engine": self._engine.kind})

    async def metrics(self, _request: web.Request) -> web.Response:
        text = self._engine.metrics()
        return web.Response(body=text.encode(), headers={"Content-Type": METRICS_CONTENT_TYPE})

    async def models(self, _request: web.Request) -> web.Response:
        card = {
            "id": self._engine.settings.model_name,
            "object": "model",
            "created": 0,
            "owned_by": "seamlessflow",
            "max_model_len": self._engine.limits.max_model_len,
        }
        return json_response({"object": "list", "data": [card]})


def _describe(routes: list[web.RouteDef]) -> dict[str, Any]:
    """Return an OpenAPI document from which a client can see the routes and the fields of a request."""
    schemas, components = msgspec.json.schema_components(
        [GenerateRequest], ref_template="#/components/schemas/{name}"
    )
    body = {"content": {"application/json": {"schema": schemas[0]}}}
    paths: dict[str, dict[str, Any]] = {}
    for route in routes:
        operation: dict[str, Any] = {"responses": {"200": {"description": "OK"}}}
        if route.path == "/inference/v1/generate":
            operation["requestBody"] = body
        paths.setdefault(route.path, {})[route.method.lower()] = operation
    return {
        "openapi": "3.1.0",
        "info": {"title": "SeamlessFlow engine", "version": ENGINE_VERSION},
        "paths": paths,
        "components": {"schemas": components},
    }
