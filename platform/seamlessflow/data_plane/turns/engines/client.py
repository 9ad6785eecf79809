"""Sends one request to one engine, through its door.

`EngineClient.generate` takes prompt ids and the number of tokens to sample, and yields `TokenChunk`s. Every failure is
one of three exceptions, so the caller only decides where to continue. Tokens of an engine that died carry the version
that its stream named; nothing is guessed. A `Lifeline` ties the request to its engine, so that the watch can cut every
wait for it. Invariant: a cut lifeline ends a wait for the engine, never the caller's work between two chunks.
"""

import asyncio
import base64
import contextlib
import os
from collections.abc import AsyncGenerator, Mapping, Sequence
from http import HTTPStatus

import aiohttp
import msgspec
import numpy as np

from seamlessflow.core.guidance.masks import GuidedBy
from seamlessflow.core.trajectory.answer_progress import FinishReason, TokenChunk
from seamlessflow.core.trajectory.version_spans import UNKNOWN_VERSION, Spans, spans_append, spans_concat
from seamlessflow.data_plane.store.jobs import Engine
from seamlessflow.data_plane.turns.engines.connections import (
    IDLE_S,
    EngineConnection,
    EngineConnections,
)
from seamlessflow.data_plane.turns.engines.lifeline import EngineStalled, Lifeline
from seamlessflow.data_plane.turns.engines.requests import GenerateRequest, request_headers, request_message

ABORT_TIMEOUT_S = 2.0
PROBE_TIMEOUT_S = 2.0
# A request that its engine forgot ends after this silence; `watch` finds engines that hang.
STREAM_SILENCE_S = 120.0
UNARY_SILENCE_S = 900.0
_PROBE_TIMEOUT = aiohttp.ClientTimeout(total=PROBE_TIMEOUT_S)
# The number of sampled tokens, and the share of the cache in use, which grows while a prompt is prefilled.
_MOVING = ("vllm:generation_tokens_total", "vllm:kv_cache_usage_perc")
_DEFAULT_VERSION = "default"  # vLLM's name for the weights it was started with


class EngineUnavailable(Exception):
    """The engine is draining, overloaded or lost; it sends nothing more for this request."""


class VersionMismatch(Exception):
    """The engine serves another version, or another job, than the engine table says."""

    def __init__(self, served_version: int | None) -> None:
        super().__init__(f"the engine serves version {served_version}")
        self.served_version = served_version


class EngineRefused(Exception):
    """The engine understood the request and will never serve it, so no other engine will either."""


class _LogprobEntry(msgspec.Struct):
    logprob: float


class _Logprobs(msgspec.Struct):
    content: list[_LogprobEntry] = []


class _Span(msgspec.Struct):
    version: str | int | None
    start: int
    end: int


class _Choice(msgspec.Struct):
    token_ids_b64: str | None = None
    logprobs_b64: str | None = None
    token_ids: list[int] | None = None
    logprobs: _Logprobs | None = None
    finish_reason: str | None = None
    weight_version: str | int | None = None
    weight_versions: list[_Span] | None = None
    guided_by: GuidedBy | None = None
    top_token_ids_b64: str = ""
    top_logprobs_b64: str = ""


class _Answer(msgspec.Struct):
    choices: list[_Choice] = []
    error: dict[str, object] | None = None
    weight_versions: list[_Span] | None = None


class _Refusal(msgspec.Struct):
    code: str | int | None = None
    served_version: int | None = None
    error: dict[str, object] | None = None


_decode_answer = msgspec.json.Decoder(_Answer).decode
_decode_refusal = msgspec.json.Decoder(_Refusal).decode


class EngineClient:
    """Asks engines; one per process."""

    def __init__(self) -> None:
        self._connections = EngineConnections()
        self._http = aiohttp.ClientSession(  # for everything but answers
            connector=aiohttp.TCPConnector(limit=0, keepalive_timeout=IDLE_S),
            auto_decompress=False,
            skip_auto_headers=("User-Agent", "Accept", "Accept-Encoding"),
        )
        self._aborts: set[asyncio.Task[None]] = set()

    async def close(self) -> None:
        if self._aborts:
            await asyncio.wait(self._aborts)
        self._connections.close()
        await self._http.close()

    async def generate(
        self, engine: Engine, request: GenerateRequest, lifeline: Lifeline, *, is_streamed: bool = True
    ) -> AsyncGenerator[TokenChunk, None]:
        """Yield chunks of one answer; the last has a finish reason. An answer that is not streamed is one chunk.

        Closing the iterator early, or cancelling the wait, aborts the request. Raises EngineUnavailable,
        VersionMismatch and EngineRefused.
        """
        request_id = os.urandom(16).hex()
        connection: EngineConnection | None = None
        has_ended = False  # the engine has nothing left to abort
        try:
            connection = await self._connections.take(engine.endpoint, lifeline)
            message = request_message(engine, request, request_id, is_streamed=is_streamed)
            connection.ask(message, silence_s=STREAM_SILENCE_S if is_streamed else UNARY_SILENCE_S)
            if await connection.head() != HTTPStatus.OK:
                failure = _failure(connection.status, await connection.read_all())
                has_ended = True
                raise failure
            chunks = _streamed_chunks if is_streamed else _whole_chunk
            async for chunk in chunks(connection, engine.version):
                has_ended = chunk.finish_reason is not None
                yield chunk
            if not has_ended:
                raise EngineUnavailable("the engine's stream ended before its answer did")
        except EngineStalled as error:
            has_ended = True
            self._abort_later(engine, request_id)
            raise EngineUnavailable(str(error)) from error
        except (OSError, msgspec.DecodeError) as error:
            if has_ended:  # only the end of the stream is missing
                return
            has_ended = True
            raise EngineUnavailable(f"{type(error).__name__}: {error}") from error
        finally:
            if connection is not None:
                self._connections.give_back(connection, lifeline)
            if not has_ended:
                await asyncio.shield(self._abort(engine, request_id))

    async def counters(self, engine: Engine) -> str | None:
        """Return the counters that change while the engine works, as text to compare; None if no answer came in time.

        The text is empty if the engine answered without counters; then there is nothing to compare.
        """
        try:
            async with self._http.get(
                f"{engine.endpoint}/metrics", headers=request_headers(engine), timeout=_PROBE_TIMEOUT
            ) as response:
                text = (await response.read()).decode(errors="replace")
        except (aiohttp.ClientError, ConnectionError, TimeoutError):
            return None
        return "\n".join(line for line in text.splitlines() if line.startswith(_MOVING))

    def _abort_later(self, engine: Engine, request_id: str) -> None:
        """Abort in the background, so the turn does not wait for an engine that may not respond."""
        task = asyncio.create_task(self._abort(engine, request_id))
        self._aborts.add(task)
        task.add_done_callback(self._aborts.discard)

    async def _abort(self, engine: Engine, request_id: str) -> None:
        """Abort the request explicitly, because an engine may notice a closed connection late."""
        # A lost engine has nothing left to abort.
        with contextlib.suppress(aiohttp.ClientError, ConnectionError, TimeoutError):
            await self._http.post(
                f"{engine.endpoint}/inference/v1/abort_requests",
                data=msgspec.json.encode({"request_ids": [f"generate-tokens-{request_id}"]}),
                headers=request_headers(engine),
                timeout=aiohttp.ClientTimeout(total=ABORT_TIMEOUT_S),
            )


def _failure(status: int, raw: bytes) -> Exception:
    try:
        refusal = _decode_refusal(raw)
    except msgspec.DecodeError:
        refusal = _Refusal()
    if status == HTTPStatus.CONFLICT:
        return VersionMismatch(refusal.served_version if refusal.code == "version_mismatch" else None)
    if status in (
        HTTPStatus.BAD_REQUEST,
        HTTPStatus.REQUEST_ENTITY_TOO_LARGE,
        HTTPStatus.UNPROCESSABLE_ENTITY,
    ):
        message = (refusal.error or {}).get("message") or raw[:200].decode(errors="replace")
        return EngineRefused(f"the engine refused the request: {message}")
    return EngineUnavailable(f"the engine answered {status} {refusal.code or ''}".rstrip())


async def _streamed_chunks(
    connection: EngineConnection, expected_version: int
) -> AsyncGenerator[TokenChunk, None]:
    """Yield what arrived together as one chunk, so that a burst costs one wake-up."""
    rest, guided_by = b"", None
    while raw := await connection.read_some():
        *events, rest = (rest + raw).split(b"\n\n")
        answers = [_decode_answer(event[6:]) for event in events if event.startswith(b"data: {")]
        failed = next((number for number, answer in enumerate(answers) if answer.error is not None), None)
        chunks: list[TokenChunk] = []
        for choice in (choice for answer in answers[:failed] for choice in answer.choices):
            guided_by = guided_by or choice.guided_by  # only the first event has it
            chunks.append(_streamed_chunk(choice, guided_by, expected_version))
            if chunks[-1].finish_reason is not None:
                yield _joined(chunks)
                chunks = []
        if chunks:
            yield _joined(chunks)
        if failed is not None:
            raise _stream_failure(answers[failed].error or {})


def _streamed_chunk(choice: _Choice, guided_by: GuidedBy | None, expected_version: int) -> TokenChunk:
    ids, logprobs = _tokens(choice)
    version = _version(choice.weight_version, expected_version)
    spans = spans_append((), num_tokens=0, version=version, num_added=len(ids) // 4)
    return TokenChunk(ids, logprobs, spans, _finish_reason(choice), guided_by, *_top(choice))


def _joined(chunks: Sequence[TokenChunk]) -> TokenChunk:
    """Return one chunk with the tokens of all; only the last may have a finish reason."""
    first, *others = chunks
    if not others:
        return first
    spans, num_tokens = first.spans, first.num_tokens
    for chunk in others:
        spans = spans_concat(spans, num_first=num_tokens, second=chunk.spans)
        num_tokens += chunk.num_tokens
    return TokenChunk(
        b"".join(chunk.token_ids for chunk in chunks),
        b"".join(chunk.logprobs for chunk in chunks),
        spans,
        chunks[-1].finish_reason,
        first.guided_by,
        b"".join(chunk.top_ids for chunk in chunks),
        b"".join(chunk.top_logprobs for chunk in chunks),
    )


def _stream_failure(error: Mapping[str, object]) -> Exception:
    """Return what an error event means: after a bad request, no engine will continue the answer."""
    if error.get("code") == HTTPStatus.BAD_REQUEST:
        return EngineRefused(f"the engine refused the request: {error.get('message')}")
    return EngineUnavailable(str(error.get("message")))


async def _whole_chunk(
    connection: EngineConnection, expected_version: int
) -> AsyncGenerator[TokenChunk, None]:
    answer = _decode_answer(await connection.read_all())
    if not answer.choices:
        raise EngineUnavailable("the engine's answer has no choice")
    choice = answer.choices[0]
    ids, logprobs = _tokens(choice)
    spans: Spans = ()
    for span in choice.weight_versions or answer.weight_versions or ():
        version = _version(span.version, expected_version)
        spans = spans_append(spans, num_tokens=span.start, version=version, num_added=span.end - span.start)
    if not spans and ids:
        spans = (0, UNKNOWN_VERSION)
    reason = _finish_reason(choice)
    if reason is None:
        raise EngineUnavailable("the engine's answer has no finish reason")
    yield TokenChunk(ids, logprobs, spans, reason, choice.guided_by, *_top(choice))


def _tokens(choice: _Choice) -> tuple[bytes, bytes]:
    if choice.token_ids_b64 is not None:
        return base64.b64decode(choice.token_ids_b64), base64.b64decode(choice.logprobs_b64 or "")
    logprobs = [entry.logprob for entry in choice.logprobs.content] if choice.logprobs else []
    return (
        np.asarray(choice.token_ids or [], dtype="<i4").tobytes(),
        np.asarray(logprobs, dtype="<f4").tobytes(),
    )


def _top(choice: _Choice) -> tuple[bytes, bytes]:
    if not choice.top_token_ids_b64:
        return b"", b""
    return base64.b64decode(choice.top_token_ids_b64), base64.b64decode(choice.top_logprobs_b64)


def _version(named: str | int | None, expected: int) -> int:
    if named is None:
        return UNKNOWN_VERSION
    if named == _DEFAULT_VERSION:
        return expected
    try:
        return int(named)
    except ValueError:
        return UNKNOWN_VERSION


def _finish_reason(choice: _Choice) -> FinishReason | None:
    if choice.finish_reason is None:
        return None
    try:
        return FinishReason(choice.finish_reason)
    except ValueError:
        raise EngineUnavailable(f"the engine ended with {choice.finish_reason!r}") from None
