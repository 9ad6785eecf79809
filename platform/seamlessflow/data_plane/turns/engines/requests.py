"""The messages of a gateway to an engine: the bytes of a request for an answer, and the headers of every request.

Invariant: the credential, the job and the version in the headers are those of the engine's row.
"""

import functools
from collections.abc import Sequence
from dataclasses import dataclass, field
from uuid import UUID

import msgspec
import numpy as np

from seamlessflow.core.trajectory.asked_sampling import AskedSampling
from seamlessflow.data_plane.store.jobs import Engine
from seamlessflow.runtime.http.heads import address_of, request_head, request_whole

GENERATE_PATH = "/inference/v1/generate"
_NUM_HEADS = 256  # one per engine and version that it serves


@dataclass(frozen=True, slots=True)
class GenerateRequest:
    token_ids: bytes
    max_tokens: int
    temperature: float
    stop_token_ids: Sequence[int]
    asked: AskedSampling = field(default_factory=AskedSampling)
    num_answered: int = 0  # how many of the last prompt tokens belong to the answer


def request_headers(engine: Engine) -> dict[str, str]:
    return _headers(engine.token, engine.job_id, engine.version)


def _headers(token: str, job_id: UUID, version: int) -> dict[str, str]:
    return {
        "Authorization": f"Bearer {token}",
        "X-SeamlessFlow-Job": str(job_id),
        "X-SeamlessFlow-Policy-Version": str(version),
        "Content-Type": "application/json",
    }


def request_message(engine: Engine, request: GenerateRequest, request_id: str, *, is_streamed: bool) -> bytes:
    """Return a whole HTTP request for an answer."""
    head, salt = _constants(engine.endpoint, engine.token, engine.job_id, engine.version)
    body = _body(request, request_id, salt, is_streamed=is_streamed)
    return request_whole(head, body)


@functools.lru_cache(maxsize=_NUM_HEADS)
def _constants(endpoint: str, token: str, job_id: UUID, version: int) -> tuple[bytes, str]:
    """Return the head of a request, and the salt of the engine's cache."""
    headers = _headers(token, job_id, version)
    return request_head("POST", address_of(endpoint), GENERATE_PATH, headers), f"{job_id}:{version}"


def _body(request: GenerateRequest, request_id: str, salt: str, *, is_streamed: bool) -> bytes:
    params: dict[str, object] = {
        "temperature": request.temperature,
        "top_p": 1.0,
        "max_tokens": request.max_tokens,
        "logprobs": request.asked.num_top,
        "stop_token_ids": list(request.stop_token_ids),
        "detokenize": False,
        **request.asked.reshaping,
    }
    body: dict[str, object] = {
        "request_id": request_id,
        "token_ids": np.frombuffer(request.token_ids, dtype="<i4").tolist(),
        "sampling_params": params,
        "stream": is_streamed,
        "cache_salt": salt,
        "packed": True,
    }
    if request.asked.guide is not None:
        params["structured_outputs"] = request.asked.guide.wanted
        body["guided_prefix"] = request.num_answered
    return msgspec.json.encode(body)
