"""The control calls of an engine over its unix socket: vLLM's own routes, which only the supervisor can reach.

Each method call becomes an HTTP request. Every failure, whatever its kind, is an EngineError with one sentence.
"""

from pathlib import Path

import aiohttp
import msgspec

from seamlessflow.core.protocol.worker import WeightsArrival
from seamlessflow.core.types.transports import WeightTransport

VERB_TIMEOUT_S = 600.0  # loading weights may take that long
SHOWN_CHARACTERS = 300
# The routes that this client and the gateways use, whatever kind and version the engine is.
NEEDED_ROUTES = (
    *("/inference/v1/generate", "/inference/v1/abort_requests", "/metrics", "/pause", "/resume"),
    *(
        "/stage_weights",
        "/start_weight_update",
        "/update_weights",
        "/finish_weight_update",
        "/sleep",
        "/wake_up",
    ),
)


class EngineError(RuntimeError):
    """The engine refused a call or cannot be reached."""


class EngineClient:
    def __init__(self, engine_socket: Path) -> None:
        connector = aiohttp.UnixConnector(str(engine_socket), keepalive_timeout=2.0)
        timeout = aiohttp.ClientTimeout(total=VERB_TIMEOUT_S)
        self._session = aiohttp.ClientSession(connector=connector, timeout=timeout)

    async def check_capabilities(self) -> None:
        """Check that the engine's own description has all needed routes. Raises EngineError."""
        try:
            async with self._session.get("http://engine/openapi.json") as response:
                response.raise_for_status()
                offered = (await response.json())["paths"]
        except (aiohttp.ClientError, TimeoutError, ValueError, KeyError) as error:
            raise EngineError(f"the engine does not describe itself at /openapi.json: {error!r}") from error
        if missing := [route for route in NEEDED_ROUTES if route not in offered]:
            raise EngineError(f"the engine lacks {', '.join(missing)}")

    async def stage_weights(
        self, folder: Path, *, version: int, transport: WeightTransport
    ) -> WeightsArrival:
        """Have the engine receive and check a version while it goes on serving the previous one."""
        raw = await self._post("/stage_weights", {"path": str(folder), "transport": transport})
        try:
            return msgspec.convert({**msgspec.json.decode(raw), "version": version}, type=WeightsArrival)
        except (msgspec.MsgspecError, TypeError) as error:
            raise EngineError(f"/stage_weights returned an unexpected answer: {error}") from error

    async def update_weights(self, folder: Path, *, version: int) -> None:
        """Update in place: running requests stay, and their cache is recomputed with the new weights."""
        await self._post("/start_weight_update")  # from here on, new requests wait
        await self._post("/pause?mode=keep&clear_cache=true")
        await self._post("/update_weights", {"update_info": {"path": str(folder)}})
        await self._post("/finish_weight_update", {"weight_version": str(version)})
        await self._post("/resume")

    async def sleep(self) -> int:
        """Have the engine free the memory of its devices; return how many bytes of each it keeps."""
        raw = await self._post("/sleep?level=1")
        try:
            return int(msgspec.json.decode(raw)["kept_bytes"])
        except (msgspec.MsgspecError, TypeError, KeyError, ValueError) as error:
            raise EngineError(f"/sleep returned an unexpected answer: {error!r}") from error

    async def wake_up(self) -> None:
        await self._post("/wake_up")

    async def close(self) -> None:
        await self._session.close()

    async def _post(self, verb: str, body: object | None = None) -> bytes:
        try:
            async with self._session.post(f"http://engine{verb}", json=body) as response:
                answer = await response.read()
                if response.status >= 400:
                    shown = answer.decode(errors="replace")[:SHOWN_CHARACTERS]
                    raise EngineError(f"{verb} returned HTTP {response.status}: {shown}")
                return answer
        except (aiohttp.ClientError, TimeoutError) as error:
            raise EngineError(f"{verb} got no answer: {error!r}") from error
