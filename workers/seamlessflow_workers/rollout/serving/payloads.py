"""Answers of the HTTP surface in vLLM's shapes: takes sequences and returns JSON bytes.

With `packed` a choice carries its tokens as base64 of little-endian int32 (`token_ids_b64`) and its logprobs as
base64 of float32 (`logprobs_b64`) instead of one JSON object per token. If `logprobs` is k > 0, it also carries the k
likeliest tokens of each, likeliest first (`top_token_ids_b64`, `top_logprobs_b64`: k numbers per token). Positions
without a token that can be sampled have -1 and minus infinity.

The choice of a guided answer, and of the first event of its stream, says in `guided_by` who computed its masks.
"""

import base64
import time
from http import HTTPStatus
from typing import Any

import msgspec
import numpy as np

from seamlessflow_workers.rollout.serving.exchange import Answer
from seamlessflow_workers.rollout.serving.sequence import SequenceFinishReason, ServedSequence

REQUEST_ID_PREFIX = "generate-tokens-"
NO_TOKEN = -1
STREAM_END = b"data: [DONE]\n\n"

_encode = msgspec.json.encode


def json_answer(content: object, *, status: int = HTTPStatus.OK) -> Answer:
    return Answer(_encode(content), status)


def escaped_label(value: str) -> str:
    """Return a label's value as the Prometheus text format wants it."""
    return value.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n")


def error_content(
    *, status: HTTPStatus, message: str, kind: str | None = None, field: str | None = None
) -> object:
    return {
        "error": {"message": message, "type": kind or status.phrase, "param": field, "code": status.value},
    }


def error_answer(
    *, status: HTTPStatus, message: str, kind: str | None = None, field: str | None = None
) -> Answer:
    return json_answer(error_content(status=status, message=message, kind=kind, field=field), status=status)


def usage(sequence: ServedSequence, *, num_generated: int) -> dict[str, Any]:
    return {
        "prompt_tokens": sequence.num_prompt_tokens,
        "completion_tokens": num_generated,
        "total_tokens": sequence.num_prompt_tokens + num_generated,
        "prompt_tokens_details": {"cached_tokens": sequence.num_cached_tokens or 0},
    }


def weight_versions(sequence: ServedSequence, *, num_generated: int) -> list[dict[str, Any]]:
    return [
        {"version": version, "start": start, "end": end}
        for version, start, end in sequence.spans(start=0, end=num_generated)
    ]


def unary_content(sequence: ServedSequence, *, model: str, is_packed: bool, return_prompt: bool) -> object:
    num_generated = sequence.num_generated
    choice = _tokens(sequence, start=0, end=num_generated, is_packed=is_packed)
    choice |= {
        "index": 0,
        "finish_reason": sequence.finish_reason,
        "stop_reason": sequence.stop_reason,
        "weight_versions": weight_versions(sequence, num_generated=num_generated),
        **_guided_by(sequence),
    }
    return {
        "request_id": REQUEST_ID_PREFIX + sequence.request_id,
        "model": model,
        "created": int(time.time()),
        "output_mode": "tokens",
        "usage": usage(sequence, num_generated=num_generated),
        "prompt_token_ids": _prompt(sequence) if return_prompt else None,
        "prompt_logprobs": None,
        "choices": [choice],
    }


def stream_frames(
    sequence: ServedSequence,
    *,
    start: int,
    end: int,
    finish_reason: SequenceFinishReason | None,
    is_packed: bool,
    return_prompt: bool,
) -> bytes:
    """Return server-sent events for generated tokens `start` … `end`, one per weight version.

    With a `finish_reason` the last event also carries the reason, the versions of all tokens and the usage.
    """
    spans: list[tuple[str | None, int, int]] = [*sequence.spans(start=start, end=end)]
    if not spans and finish_reason is not None:
        spans = [(None, end, end)]
    frames = []
    for version, first, last in spans:
        choice = _tokens(sequence, start=first, end=last, is_packed=is_packed)
        choice |= {
            "index": 0,
            "weight_version": version,
            "finish_reason": None,
            "stop_reason": None,
            "weight_versions": None,
        }
        content: dict[str, Any] = {
            "request_id": REQUEST_ID_PREFIX + sequence.request_id,
            "output_mode": "tokens",
            "choices": [choice],
        }
        if first == 0:
            choice |= _guided_by(sequence)
        if return_prompt and first == 0:
            content["prompt_token_ids"] = _prompt(sequence)
        if finish_reason is not None and last == end:
            choice["finish_reason"] = finish_reason
            choice["stop_reason"] = sequence.stop_reason
            choice["weight_versions"] = weight_versions(sequence, num_generated=end)
            content["usage"] = usage(sequence, num_generated=end)
        frames.append(b"data: " + _encode(content) + b"\n\n")
    return b"".join(frames)


def stream_usage_frame(sequence: ServedSequence) -> bytes:
    content = {
        "request_id": REQUEST_ID_PREFIX + sequence.request_id,
        "output_mode": "tokens",
        "choices": [],
        "usage": usage(sequence, num_generated=sequence.num_generated),
    }
    return b"data: " + _encode(content) + b"\n\n"


def stream_error_frame(message: str, *, field: str | None = None) -> bytes:
    """Return the last event of a failed stream. `field` names the option that no engine offers."""
    status = HTTPStatus.INTERNAL_SERVER_ERROR if field is None else HTTPStatus.BAD_REQUEST
    kind = "InternalServerError" if field is None else "BadRequestError"
    content = error_content(status=status, message=message, kind=kind, field=field)
    return b"data: " + _encode(content) + b"\n\n"


def _guided_by(sequence: ServedSequence) -> dict[str, Any]:
    return {} if sequence.matcher is None else {"guided_by": sequence.matcher.guided_by}


def _prompt(sequence: ServedSequence) -> list[int]:
    prompt: list[int] = sequence.tokens[: sequence.num_prompt_tokens].tolist()
    return prompt


def _tokens(sequence: ServedSequence, *, start: int, end: int, is_packed: bool) -> dict[str, Any]:
    offset = sequence.num_prompt_tokens
    ids = sequence.tokens[offset + start : offset + end]
    logprobs = sequence.logprobs[start:end] if sequence.params.logprobs is not None else None
    if is_packed:
        return {
            "token_ids_b64": _packed_ids(ids),
            "logprobs_b64": None if logprobs is None else _packed_floats(logprobs),
            **_packed_top(sequence, start=start, end=end),
        }
    if logprobs is None:
        return {"token_ids": ids.tolist(), "logprobs": None}
    content = [
        {"token_id": token, "logprob": logprob, "top_logprobs": _top(sequence, start + index, token, logprob)}
        for index, (token, logprob) in enumerate(zip(ids.tolist(), logprobs.tolist(), strict=True))
    ]
    return {"token_ids": ids.tolist(), "logprobs": {"content": content}}


def _packed_top(sequence: ServedSequence, *, start: int, end: int) -> dict[str, str]:
    num_top = sequence.params.logprobs or 0
    if not num_top:
        return {}
    ids = np.full((end - start, num_top), NO_TOKEN, dtype=np.int32)
    logprobs = np.full((end - start, num_top), -np.inf, dtype=np.float32)
    for row, (tokens, values) in enumerate(sequence.top_logprobs[start:end]):
        possible = [(token, value) for token, value in zip(tokens, values, strict=True) if value > -np.inf]
        for rank, (token, value) in enumerate(possible):
            ids[row, rank], logprobs[row, rank] = token, value
    return {"top_token_ids_b64": _packed_ids(ids), "top_logprobs_b64": _packed_floats(logprobs)}


def _packed_ids(ids: np.ndarray[Any, np.dtype[np.int32]]) -> str:
    return base64.b64encode(ids.astype("<i4", copy=False).tobytes()).decode()


def _packed_floats(logprobs: np.ndarray[Any, np.dtype[np.float32]]) -> str:
    return base64.b64encode(logprobs.astype("<f4", copy=False).tobytes()).decode()


def _top(sequence: ServedSequence, index: int, token: int, logprob: float) -> list[dict[str, Any]]:
    """Return the likeliest tokens in vLLM's order: the sampled one first, then the others by rank.

    There are as many entries as `logprobs` asks for, and at least one.
    """
    sampled = [{"token_id": token, "logprob": logprob}]
    if not sequence.params.logprobs:
        return sampled
    ids, values = sequence.top_logprobs[index]
    ranked = [
        {"token_id": other, "logprob": value, "rank": rank}
        for rank, (other, value) in enumerate(zip(ids, values, strict=True), start=1)
        if value > -float("inf")
    ]
    return (sampled + [entry for entry in ranked if entry["token_id"] != token])[: sequence.params.logprobs]
