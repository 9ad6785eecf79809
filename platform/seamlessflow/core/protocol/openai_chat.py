"""Chat completions as the gateway reads and answers them: the fields of OpenAI's API that can change an answer.

Defines the type that a request is decoded with, and the types of an answer and of the chunks of a stream. Invariant: a
field of OpenAI's API that is missing here does not change an answer (user, metadata, store, …).
"""

from typing import Any, Literal

import msgspec


class StreamOptions(msgspec.Struct):
    include_usage: bool = False  # asks for a last chunk with the usage


class ChatBody(msgspec.Struct):
    """The body of `POST /v1/chat/completions`.

    `temperature`, `top_p`, `top_k` and `min_p` are accepted if they are valid, but the job's values are used. `seed` is
    recorded and has no effect. `response_format` is text, a JSON object or a JSON schema; `tool_choice` is `auto`,
    `none`, `required` or names a function; strict tools are called by their schemas only. Such answers are sampled
    under the masks of a grammar, and trained under the same. Answers with penalties
    or `logit_bias` are recorded and not trained. `functions` and `min_tokens` are refused unless their value has no
    effect. Any other field is ignored, and the response header `X-SeamlessFlow-Ignored` names it.
    """

    messages: list[dict[str, Any]]
    model: str | None = None
    tools: list[dict[str, Any]] | None = None
    tool_choice: str | dict[str, Any] | None = None
    parallel_tool_calls: bool | None = None  # false has an effect only on forced or strict calls
    response_format: dict[str, Any] | None = None
    chat_template_kwargs: dict[str, Any] | None = None
    n: int | None = None
    stop: str | list[str] | None = None
    max_tokens: int | None = None
    max_completion_tokens: int | None = None
    stream: bool | None = None
    stream_options: StreamOptions | None = None
    logprobs: bool | None = None
    top_logprobs: int | None = None
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
    functions: list[Any] | None = None
    min_tokens: int | None = None


class FunctionCall(msgspec.Struct, kw_only=True):
    name: str
    arguments: str  # JSON


class ToolCall(msgspec.Struct, kw_only=True):
    id: str
    type: Literal["function"]
    function: FunctionCall


class ToolCallDelta(ToolCall, kw_only=True):
    """A tool call in a stream; it comes whole in one chunk."""

    index: int


class AssistantMessage(msgspec.Struct, kw_only=True):
    role: Literal["assistant"]
    content: str | None
    tool_calls: list[ToolCall] | msgspec.UnsetType = msgspec.UNSET
    reasoning_content: str | msgspec.UnsetType = msgspec.UNSET


class TopLogprob(msgspec.Struct, kw_only=True):
    token: str
    logprob: float
    bytes: list[int]


class TokenLogprob(TopLogprob, kw_only=True):
    """The log probability of one token, and those of the likeliest tokens at its position, likeliest first."""

    top_logprobs: list[TopLogprob]


class ChoiceLogprobs(msgspec.Struct, kw_only=True):
    content: list[TokenLogprob]
    refusal: None


class ChatChoice(msgspec.Struct, kw_only=True):
    index: int
    message: AssistantMessage
    logprobs: ChoiceLogprobs | None
    finish_reason: Literal["stop", "length", "tool_calls"]


class PromptTokens(msgspec.Struct, kw_only=True):
    cached_tokens: int  # that the session's tree had before this turn


class CompletionTokens(msgspec.Struct, kw_only=True):
    reasoning_tokens: int


class Usage(msgspec.Struct, kw_only=True):
    prompt_tokens: int
    completion_tokens: int
    total_tokens: int
    prompt_tokens_details: PromptTokens
    completion_tokens_details: CompletionTokens


class ChatCompletion(msgspec.Struct, kw_only=True):
    id: str
    object: Literal["chat.completion"]
    created: int
    model: str  # the name of the job
    choices: list[ChatChoice]
    usage: Usage


class ChunkDelta(msgspec.Struct, kw_only=True):
    role: Literal["assistant"] | msgspec.UnsetType = msgspec.UNSET
    content: str | msgspec.UnsetType = msgspec.UNSET
    reasoning_content: str | msgspec.UnsetType = msgspec.UNSET
    tool_calls: list[ToolCallDelta] | msgspec.UnsetType = msgspec.UNSET


class ChunkChoice(msgspec.Struct, kw_only=True):
    index: int
    delta: ChunkDelta
    logprobs: ChoiceLogprobs | None
    finish_reason: Literal["stop", "length", "tool_calls"] | None


class ChatCompletionChunk(msgspec.Struct, kw_only=True):
    """One event of a stream. If the usage was requested, the last event before `[DONE]` has it and has no choices."""

    id: str
    object: Literal["chat.completion.chunk"]
    created: int
    model: str
    choices: list[ChunkChoice]
    usage: Usage | msgspec.UnsetType = msgspec.UNSET


class ModelCard(msgspec.Struct, kw_only=True):
    id: str  # the name of the session's job
    object: str = "model"
    created: int
    owned_by: str = "seamlessflow"
    max_model_len: int  # tokens of a prompt and its answer together


class ModelList(msgspec.Struct, kw_only=True):
    object: str = "list"
    data: list[ModelCard]
