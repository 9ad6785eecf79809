"""Completions as the gateway reads and answers them: the fields of OpenAI's older API that can change an answer."""

from typing import Any, Literal

import msgspec

from seamlessflow.core.protocol.openai_chat import StreamOptions, Usage


class CompletionBody(msgspec.Struct):
    """The body of `POST /v1/completions`.

    `prompt` is a string or a list of token ids, or a list with one of these. `temperature`, `top_p`, `top_k` and
    `min_p` are accepted if they are valid, but the job's values are used. `seed` is recorded and has no effect. `echo`,
    `suffix`, `best_of` and `min_tokens` are refused unless their value has no effect. Answers with penalties or
    `logit_bias` are recorded and not trained. Any other field is ignored, and the response header
    `X-SeamlessFlow-Ignored` names it.
    """

    prompt: str | list[Any]
    model: str | None = None
    n: int | None = None
    stop: str | list[str] | None = None
    max_tokens: int | None = None  # 16 if it is absent
    stream: bool | None = None
    stream_options: StreamOptions | None = None
    logprobs: int | None = None
    # Overridden by the job.
    temperature: float | None = None
    top_p: float | None = None
    top_k: int | None = None
    min_p: float | None = None
    seed: int | None = None  # recorded, without effect
    # Change the answer, which then is not trained.
    frequency_penalty: float | None = None
    presence_penalty: float | None = None
    repetition_penalty: float | None = None
    logit_bias: dict[str, float] | None = None
    # Refused unless the value has no effect.
    echo: bool | None = None
    suffix: str | None = None
    best_of: int | None = None
    min_tokens: int | None = None


class CompletionLogprobs(msgspec.Struct, kw_only=True):
    """The log probabilities of the tokens of one text; the lists have the same length."""

    tokens: list[str]
    token_logprobs: list[float]
    top_logprobs: list[dict[str, float]]  # at most the sampled token itself
    text_offset: list[int]  # where each token begins in the text of the whole answer, in characters


class CompletionChoice(msgspec.Struct, kw_only=True):
    index: int
    text: str
    logprobs: CompletionLogprobs | None
    finish_reason: Literal["stop", "length"] | None  # null in a stream until the answer ends


class Completion(msgspec.Struct, kw_only=True):
    """An answer, or one event of a stream. With `include_usage`, the last event has the usage and no choices."""

    id: str
    object: Literal["text_completion"] = "text_completion"
    created: int
    model: str  # the name of the job
    choices: list[CompletionChoice]
    usage: Usage | msgspec.UnsetType = msgspec.UNSET
