"""An engine whose answers a test writes: exact, and faulty on demand.

The script maps the prompt's text to the answer's text. The engine tokenises it and sends its tokens
one by one, continuing where a continued prompt ended. It checks credentials, job and version as the
real engine does.
"""

import asyncio
import base64
import itertools
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import msgspec
import numpy as np
from aiohttp import web

from seamlessflow.core.protocol.credentials import PhaseClaims
from seamlessflow.data_plane.turns.rendering.model_text import ModelText

HEADER = "<|im_start|>assistant\n"
Script = Callable[[str], str]


@dataclass(slots=True)
class ScriptedEngine:
    """`version` may be changed while it runs; later tokens then carry the new one."""

    text: ModelText
    script: Script
    version: int = 0
    headers: tuple[str, ...] = (HEADER,)  # the ends of prompts, after which answers begin
    token: str = ""
    step_s: float = 0.0
    is_draining: bool = False
    abort_after: int | None = None  # tokens of one request, then finish reason abort
    die_after: int | None = None  # tokens of one request, then the connection breaks off
    version_after: tuple[int, int] | None = None  # (tokens of one request, new version)
    freeze_after: int | None = (
        None  # tokens of one request, then nothing moves until `thaw`, as if it were stopped
    )
    is_unpacked: bool = False  # plain token arrays, as vLLM gives them
    sampling: dict[str, Any] = field(default_factory=dict)  # of the last request
    num_requests: int = 0
    num_in_flight: int = 0
    num_sampled: int = 0
    num_statuses: dict[int, int] = field(default_factory=dict)
    base_url: str = ""
    claims: PhaseClaims | None = None
    _runner: Any = None
    _awake: asyncio.Event = field(default_factory=asyncio.Event)

    async def start(self) -> "ScriptedEngine":
        app = web.Application(client_max_size=1 << 26)
        app.add_routes(
            [
                web.post("/inference/v1/generate", self._generate),
                web.post("/inference/v1/abort_requests", self._abort),
                web.get("/metrics", self._metrics),
            ]
        )
        self._awake.set()
        self._runner = web.AppRunner(app, handler_cancellation=True, shutdown_timeout=0.1)
        await self._runner.setup()
        await web.TCPSite(self._runner, "127.0.0.1", 0).start()
        self.base_url = f"http://127.0.0.1:{self._runner.addresses[0][1]}"
        return self

    async def stop(self) -> None:
        await self._runner.cleanup()

    def freeze(self) -> None:
        self._awake.clear()

    def thaw(self) -> None:
        self._awake.set()

    @property
    def is_frozen(self) -> bool:
        return not self._awake.is_set()

    async def _abort(self, request: web.Request) -> web.Response:
        await self._awake.wait()
        return web.Response()

    async def _metrics(self, request: web.Request) -> web.Response:
        await self._awake.wait()
        return web.Response(text=f'vllm:generation_tokens_total{{engine="0"}} {float(self.num_sampled)}\n')

    async def _generate(self, request: web.Request) -> web.StreamResponse:
        await self._awake.wait()
        if self.token and request.headers["Authorization"] != f"Bearer {self.token}":
            return self._refuse(401, {"code": "unauthorized"})
        if self.is_draining:
            return self._refuse(503, {"code": "draining"})
        if request.headers["X-SeamlessFlow-Policy-Version"] != str(self.version):
            return self._refuse(409, {"code": "version_mismatch", "served_version": self.version})
        self.num_requests += 1
        self.num_in_flight += 1
        try:
            body = await request.json()
            self.sampling = body["sampling_params"]
            return await self._answer(request, body)
        finally:
            self.num_in_flight -= 1

    def _refuse(self, status: int, content: dict[str, Any]) -> web.Response:
        self.num_statuses[status] = self.num_statuses.get(status, 0) + 1
        return web.json_response(content, status=status)

    async def _answer(self, request: web.Request, body: dict[str, Any]) -> web.StreamResponse:
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        if body["stream"]:
            await response.prepare(request)
        said: list[tuple[int, int]] = []
        reason = "length"
        for number, token in enumerate(
            self._tokens(body["token_ids"], body["sampling_params"]["max_tokens"])
        ):
            if self.die_after is not None and number >= self.die_after:
                self.die_after = None
                assert request.transport is not None
                request.transport.abort()
                return response
            if self.abort_after is not None and number >= self.abort_after:
                self.abort_after = None
                reason = "abort"
                break
            if self.version_after is not None and number >= self.version_after[0]:
                self.version, self.version_after = self.version_after[1], None
            if self.freeze_after is not None and number >= self.freeze_after:
                self.freeze_after = None
                self.freeze()
            await self._awake.wait()
            if self.step_s:
                await asyncio.sleep(self.step_s)
            self.num_sampled += 1
            said.append((token, self.version))
            if body["stream"]:
                await response.write(_event(self._choice([said[-1]], None)))
            if token in self.text.end_ids:
                reason = "stop"
                break
        if not body["stream"]:
            return web.json_response(
                {"request_id": body["request_id"], "choices": [self._choice(said, reason)]}
            )
        await response.write(_event(self._choice([], reason)) + b"data: [DONE]\n\n")
        return response

    def _tokens(self, prompt: list[int], max_tokens: int) -> list[int]:
        shown = self.text.tokenizer.decode(prompt, skip_special_tokens=False)
        ends = (shown.rfind(header) + len(header) for header in self.headers if header in shown)
        at = max(ends, default=len(shown))  # a raw prompt has no header
        head = self.text.tokenizer.encode(shown[:at], add_special_tokens=False).ids
        answer = self.text.tokenizer.encode(self.script(shown[:at]), add_special_tokens=False).ids
        num_said = max(0, len(prompt) - len(head))
        assert prompt[len(prompt) - num_said :] == answer[:num_said], (
            "the continuation is not from its own tokens"
        )
        return answer[num_said : num_said + max_tokens]

    def _choice(self, said: list[tuple[int, int]], reason: str | None) -> dict[str, Any]:
        ids = [token for token, _ in said]
        logprobs = [logprob_of(token) for token in ids]
        choice: dict[str, Any] = {"index": 0, "finish_reason": reason}
        if self.is_unpacked:
            choice |= {"token_ids": ids, "logprobs": {"content": [{"logprob": value} for value in logprobs]}}
        else:
            choice["token_ids_b64"] = _b64(ids, "<i4")
            choice["logprobs_b64"] = _b64(logprobs, "<f4")
        if len(said) == 1 and reason is None:
            choice["weight_version"] = str(said[0][1])
        start = 0
        choice["weight_versions"] = []
        for version, run in itertools.groupby(version for _, version in said):
            end = start + len(list(run))
            choice["weight_versions"].append({"version": str(version), "start": start, "end": end})
            start = end
        return choice


def logprob_of(token: int) -> float:
    return float(np.float32(-(token % 97) / 64))


def _event(choice: dict[str, Any]) -> bytes:
    return b"data: " + msgspec.json.encode({"request_id": "x", "choices": [choice]}) + b"\n\n"


def _b64(values: list[Any], dtype: str) -> str:
    return base64.b64encode(np.asarray(values, dtype=dtype).tobytes()).decode()
