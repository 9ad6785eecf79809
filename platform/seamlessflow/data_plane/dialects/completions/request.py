"""Parses and checks the body of a completion."""

from dataclasses import dataclass
from typing import Annotated, Any

import msgspec
import numpy as np

from seamlessflow.core.protocol.openai_chat import StreamOptions
from seamlessflow.core.protocol.openai_completions import CompletionBody
from seamlessflow.data_plane.dialects.fields import (
    MAX_CHOICES,
    MAX_STOP_STRINGS,
    OPENAI_RANGES,
    body_read,
    bounded,
    check_ranges,
    overridden_flags,
    refuse_unless_neutral,
    reshaping,
    stop_strings,
    tokens_limit,
    unknown_fields,
)
from seamlessflow.data_plane.dialects.turn_request import TurnRequest
from seamlessflow.data_plane.errors import bad_request
from seamlessflow.data_plane.turns.trajectory_manager.plan import RawPrompt

MAX_LOGPROBS = 20
DEFAULT_MAX_TOKENS = 16  # as OpenAI's API
_NEUTRAL: dict[str, tuple[object, ...]] = {
    "echo": (None, False),
    "suffix": (None, ""),
    "best_of": (None, 1),
    "min_tokens": (None, 0),
}
_TokenIds = list[Annotated[int, msgspec.Meta(ge=0, lt=1 << 31)]]

_decode = msgspec.json.Decoder(CompletionBody).decode


@dataclass(frozen=True, slots=True)
class CompletionOptions:
    has_usage: bool  # the stream ends with a chunk that has the usage
    has_logprobs: bool


CompletionRequest = TurnRequest[CompletionOptions]


def completion_request_parse(raw: bytes, *, temperature: float) -> CompletionRequest:
    """Parse a body; the job fixes `temperature` for this session. Raises ApiError (400), which names the field."""
    body = body_read(_decode, raw, kind="completion")
    refuse_unless_neutral(body, _NEUTRAL)
    check_ranges(body, OPENAI_RANGES)
    max_tokens = tokens_limit("max_tokens", body.max_tokens)
    return TurnRequest(
        conversation=_prompt(body.prompt),
        num_choices=bounded("n", body.n, 1, MAX_CHOICES, default=1),
        stop=stop_strings("stop", body.stop, limit=MAX_STOP_STRINGS),
        max_tokens=DEFAULT_MAX_TOKENS if max_tokens is None else max_tokens,
        is_streamed=bool(body.stream),
        flags=({} if body.seed is None else {"seed": body.seed}) | overridden_flags(body, temperature),
        ignored=tuple(unknown_fields(raw, CompletionBody, {"stream_options": StreamOptions})),
        options=_options(body),
        num_top=bounded("logprobs", body.logprobs, 0, MAX_LOGPROBS, default=0),
        reshaping=reshaping(body),
    )


def _prompt(asked: str | list[Any]) -> RawPrompt:
    if isinstance(asked, list) and len(asked) == 1 and isinstance(asked[0], str | list):
        asked = asked[0]
    if not asked:
        raise bad_request("prompt must not be empty.", param="prompt")
    if isinstance(asked, str):
        return RawPrompt(text=asked)
    try:
        ids = msgspec.convert(asked, _TokenIds)
    except msgspec.ValidationError as error:
        raise bad_request(
            "prompt must be one string or one list of token ids; send several prompts one by one.",
            param="prompt",
        ) from error
    return RawPrompt(token_ids=np.asarray(ids, dtype="<i4").tobytes())


def _options(body: CompletionBody) -> CompletionOptions:
    return CompletionOptions(
        has_usage=bool(body.stream_options and body.stream_options.include_usage),
        has_logprobs=body.logprobs is not None,
    )
