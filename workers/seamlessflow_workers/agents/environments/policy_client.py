"""How the built-in environments ask the policy: chat completions over connections that serve all episodes of a process.

It uses the gateway's OpenAI endpoint like any agent, at a fraction of the official SDK's cost per call; agents that a
job brings use whichever client they like. It sends the constant bytes of a session's requests from a cache, and one
request is one write. Temporary failures (no connection, 408, 409, 429, 5xx) are retried with the
same bytes and the same Idempotency-Key, marked as the SDK marks retries. So the gateway continues a turn instead of
sampling it again, and samples a request once even if the network delivers it twice.
"""

import asyncio
import functools
import logging
import os
import random
from collections.abc import Mapping, Sequence

import msgspec

from seamlessflow.core.environment.episodes import POLICY_MODEL, BrokenEpisode, PolicyEndpoint
from seamlessflow.core.environment.failures import FailureKind
from seamlessflow.runtime.http.client import HttpConnections
from seamlessflow.runtime.http.heads import address_of, request_head, request_whole

MAX_RETRIES = 10  # with the pauses below about 50 s, enough for a restart of the gateway
FIRST_PAUSE_S, LONGEST_PAUSE_S = 0.5, 8.0
SILENCE_S = 3600.0  # a request may wait at the gateway through updates and hand-overs
IDLE_S = 15.0  # less than the gateway's own, and than those of usual proxies before it
NUM_KNOWN_SESSIONS = 1024  # whose constant bytes are kept
RETRY_HEADER = "x-stainless-retry-count"
KEY_HEADER = "Idempotency-Key"
_PASSING = frozenset({408, 409, 429})
_MAX_REFUSAL_CHARACTERS = 500

logger = logging.getLogger(__name__)


class ToolFunction(msgspec.Struct, frozen=True):
    name: str
    arguments: str


class ToolCall(msgspec.Struct, frozen=True):
    id: str
    function: ToolFunction
    type: str = "function"


class Message(msgspec.Struct, frozen=True, omit_defaults=True):
    """A message of the policy, in the form in which it is added to the conversation."""

    role: str
    content: str | None = None
    tool_calls: list[ToolCall] | None = None


class _Choice(msgspec.Struct, frozen=True):
    message: Message


class _Completion(msgspec.Struct, frozen=True):
    choices: list[_Choice]


class _Error(msgspec.Struct, frozen=True):
    message: str = ""


class _Refusal(msgspec.Struct, frozen=True):
    error: _Error = _Error()


class _Again(Exception):
    """This attempt failed; `pause_s` is the pause that the gateway asked for."""

    def __init__(self, reason: str, *, pause_s: float | None = None) -> None:
        super().__init__(reason)
        self.pause_s = pause_s


_encode = msgspec.json.Encoder().encode
_decode_completion = msgspec.json.Decoder(_Completion).decode


class PolicyClient:
    """Create it inside the running event loop. Sessions differ only by their key."""

    def __init__(self) -> None:
        # As many connections as the runner has sessions.
        self._connections = HttpConnections(peer="the gateway", idle_s=IDLE_S)

    async def close(self) -> None:
        self._connections.close()

    async def ask(
        self,
        policy: PolicyEndpoint,
        messages: Sequence[object],
        *,
        tools: Sequence[Mapping[str, object]] | None = None,
    ) -> Message:
        """Return the policy's next message; `messages` are mappings or `Message`s. Raises BrokenEpisode."""
        body: dict[str, object] = {"model": POLICY_MODEL, "messages": messages}
        if tools:
            body["tools"] = tools
        raw = _encode(body)
        key = os.urandom(16).hex()
        num_retries = 0
        while True:
            try:
                return await self._post(policy, raw, key, num_retries)
            except _Again as failure:
                if num_retries == MAX_RETRIES:
                    raise BrokenEpisode(
                        f"the policy did not answer: {failure}", kind=FailureKind.ENGINE
                    ) from failure
                pause_s = _pause_s(num_retries) if failure.pause_s is None else failure.pause_s
                logger.info("asking the policy again in %.1f s: %s", pause_s, failure)
            await asyncio.sleep(pause_s)
            num_retries += 1

    async def _post(self, policy: PolicyEndpoint, body: bytes, key: str, num_retries: int) -> Message:
        own = f"{RETRY_HEADER}: {num_retries}\r\n{KEY_HEADER}: {key}\r\n".encode()
        try:
            message = request_whole(_head(policy) + own, body)
            connection = await self._connections.take(address_of(policy.base_url))
            try:
                connection.ask(message, silence_s=SILENCE_S)
                raw = await connection.read_all()
            finally:
                self._connections.give_back(connection)
        except OSError as error:
            raise _Again(f"{type(error).__name__}: {error}") from error
        if connection.status == 200:
            return _decode_completion(raw).choices[0].message
        reason = f"status {connection.status}: {_refusal(raw)}"
        if connection.status in _PASSING or connection.status >= 500:
            raise _Again(reason, pause_s=_asked_pause_s(connection.headers.get(b"retry-after")))
        raise BrokenEpisode(f"the request to the policy was refused with {reason}")


@functools.lru_cache(maxsize=NUM_KNOWN_SESSIONS)
def _head(policy: PolicyEndpoint) -> bytes:
    """Return the head that a session's requests have in common. Raises BrokenEpisode, ConnectionError."""
    headers = {"Authorization": f"Bearer {policy.api_key}", "Content-Type": "application/json"}
    try:
        return request_head("POST", address_of(policy.base_url), "/chat/completions", headers)
    except ValueError as error:
        raise BrokenEpisode("the address and the key of the policy must be printable ASCII") from error


def _pause_s(num_retries: int) -> float:
    """Return a pause that doubles each time, with jitter, so that episodes that failed together spread out."""
    longest_s = min(FIRST_PAUSE_S * 2.0**num_retries, LONGEST_PAUSE_S)
    return longest_s * (1 - 0.25 * random.random())


def _asked_pause_s(header: bytes | None) -> float | None:
    if header is None or not header.isdigit():
        return None
    return min(float(header), LONGEST_PAUSE_S)


def _refusal(raw: bytes) -> str:
    try:
        message = msgspec.json.decode(raw, type=_Refusal).error.message
    except msgspec.DecodeError:
        message = ""
    return (message or raw.decode("utf-8", "replace"))[:_MAX_REFUSAL_CHARACTERS]
