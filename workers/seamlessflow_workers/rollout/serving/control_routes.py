"""Pause, weights, cache and sleep: vLLM's control verbs over HTTP.

The calls of a weight update come in this order: init (optional), start, update, finish. `update_weights` reads and
checks the whole model before it changes a parameter; if it fails, the old weights and their version stay. If
`stage_weights` was called first, reading and checking are already done, and the update only copies the result.
These routes have no authentication: they are reached over the engine's unix socket, and never through its door.
"""

import asyncio
from pathlib import Path
from typing import TypeVar

import msgspec

from seamlessflow.core.types.transports import WeightTransport
from seamlessflow_workers.rollout.serving.exchange import Answer, Handler, Request
from seamlessflow_workers.rollout.serving.payloads import json_answer
from seamlessflow_workers.rollout.serving.request import InvalidRequestError
from seamlessflow_workers.rollout.serving.served_engine import PauseMode, ServedEngine

B = TypeVar("B", bound=msgspec.Struct)


class ProtocolOrderError(ValueError):
    """A weight-update call out of order."""


class _InitBody(msgspec.Struct):
    init_info: dict[str, object]


class _StageBody(msgspec.Struct):
    path: str
    transport: WeightTransport = WeightTransport.FILE


class _UpdateInfo(msgspec.Struct):
    path: str  # a safetensors file, or a folder of shards


class _UpdateBody(msgspec.Struct):
    update_info: _UpdateInfo


class _FinishBody(msgspec.Struct):
    weight_version: str | None = None


class _VersionBody(msgspec.Struct):
    new_version: str


class ControlRoutes:
    def __init__(self, engine: ServedEngine) -> None:
        self._engine = engine
        self._update_lock = asyncio.Lock()
        self._is_update_open = False
        self._is_update_applied = False

    def table(self) -> dict[tuple[str, str], Handler]:
        return {
            ("POST", "/pause"): self.pause,
            ("POST", "/resume"): self.resume,
            ("GET", "/is_paused"): self.is_paused,
            ("POST", "/init_weight_transfer_engine"): self.init_weight_transfer,
            ("POST", "/stage_weights"): self.stage_weights,
            ("POST", "/start_weight_update"): self.start_weight_update,
            ("POST", "/update_weights"): self.update_weights,
            ("POST", "/finish_weight_update"): self.finish_weight_update,
            ("POST", "/update_weight_version"): self.update_weight_version,
            ("GET", "/weight_info"): self.weight_info,
            ("POST", "/reset_prefix_cache"): self.reset_prefix_cache,
            ("POST", "/sleep"): self.sleep,
            ("POST", "/wake_up"): self.wake_up,
            ("GET", "/is_sleeping"): self.is_sleeping,
        }

    async def pause(self, request: Request) -> Answer:
        mode = _query_mode(request)
        clear_cache = _query_bool(request, "clear_cache", default=True)
        await self._engine.pause(mode, clear_cache=clear_cache)
        return json_answer({"status": "paused"})

    async def resume(self, _request: Request) -> Answer:
        await self._engine.resume()
        return json_answer({"status": "resumed"})

    async def is_paused(self, _request: Request) -> Answer:
        return json_answer({"is_paused": self._engine.is_paused})

    async def init_weight_transfer(self, request: Request) -> Answer:
        _decode(request.body, _InitBody)
        return json_answer({"message": "Weight transfer initialized"})

    async def stage_weights(self, request: Request) -> Answer:
        """Ours, not vLLM's: called before the pause, so that the old weights serve while the new ones arrive."""
        body = _decode(request.body, _StageBody)
        async with self._update_lock:
            arrival = await self._engine.stage_weights(Path(body.path), body.transport)
        return json_answer(
            {
                "transport": arrival.transport,
                "num_bytes": arrival.num_bytes,
                "seconds": arrival.seconds,
                "fallback": arrival.fallback,
                "staged_bytes": self._engine.staged_bytes,
            }
        )

    async def start_weight_update(self, _request: Request) -> Answer:
        async with self._update_lock:
            self._engine.is_steady.clear()
            self._is_update_open = True
            self._is_update_applied = False
        return json_answer({"message": "Weight update started"})

    async def update_weights(self, request: Request) -> Answer:
        body = _decode(request.body, _UpdateBody)
        async with self._update_lock:
            if not self._is_update_open:
                raise ProtocolOrderError("call /start_weight_update before /update_weights")
            await self._engine.load_weights(Path(body.update_info.path))
            self._is_update_applied = True
        return json_answer({"message": "Weights updated"})

    async def finish_weight_update(self, request: Request) -> Answer:
        body = _decode(request.body or b"{}", _FinishBody)
        async with self._update_lock:
            if not self._is_update_applied:
                raise ProtocolOrderError(
                    "no weights were loaded since /start_weight_update; the version stays the same"
                )
            await self._engine.set_weight_version(body.weight_version)
            self._is_update_open = self._is_update_applied = False
            self._engine.is_steady.set()
        return json_answer({"message": "Weight update finished"})

    async def update_weight_version(self, request: Request) -> Answer:
        body = _decode(request.body, _VersionBody)
        await self._engine.set_weight_version(body.new_version)
        return json_answer({"success": True, "new_version": body.new_version})

    async def weight_info(self, _request: Request) -> Answer:
        return json_answer({"weight_version": self._engine.weight_version})

    async def reset_prefix_cache(self, request: Request) -> Answer:
        reset_running = _query_bool(request, "reset_running_requests", default=False)
        success = await self._engine.reset_prefix_cache(reset_running=reset_running)
        return json_answer({"success": success})

    async def sleep(self, request: Request) -> Answer:
        """Pause; at level 1 also free as much memory as the engine can."""
        level = request.asked("level", "1")
        if level not in ("0", "1"):
            raise InvalidRequestError(field="level", message=f"level must be 0 or 1, got {level!r}")
        await self._engine.sleep(_query_mode(request), level=int(level))
        return json_answer({"status": "sleeping", "level": int(level), "kept_bytes": self._engine.kept_bytes})

    async def wake_up(self, request: Request) -> Answer:
        tags = request.query.get("tags", [])
        is_awake = not tags or "kv_cache" in tags
        if is_awake:
            await self._engine.wake_up()
        return json_answer({"status": "awake" if is_awake else "sleeping", "tags": tags or None})

    async def is_sleeping(self, _request: Request) -> Answer:
        return json_answer({"is_sleeping": self._engine.is_asleep})


def _decode(raw: bytes, kind: type[B]) -> B:
    try:
        return msgspec.json.decode(raw, type=kind)
    except msgspec.MsgspecError as error:
        fields = ", ".join(kind.__struct_fields__)
        raise InvalidRequestError(field=fields, message=f"the body must contain {fields}: {error}") from error


def _query_mode(request: Request) -> PauseMode:
    mode = request.asked("mode", PauseMode.ABORT)
    try:
        return PauseMode(mode)
    except ValueError as error:
        message = f"mode must be one of {', '.join(PauseMode)}, got {mode!r}"
        raise InvalidRequestError(field="mode", message=message) from error


def _query_bool(request: Request, name: str, *, default: bool) -> bool:
    value = request.asked(name, str(default)).lower()
    if value not in ("true", "false", "1", "0"):
        raise InvalidRequestError(field=name, message=f"{name} must be true or false, got {value!r}")
    return value in ("true", "1")
