"""Responses as the gateway reads and answers them: the fields of OpenAI's API that can change an answer.

A request carries its whole conversation in `input`, or names the earlier responses and items of its session.
"""

from typing import Any, Literal

import msgspec

from seamlessflow.core.protocol.openai_chat import TokenLogprob

ResponseStatus = Literal["in_progress", "completed", "incomplete"]


class ReasoningConfig(msgspec.Struct, kw_only=True, omit_defaults=True):
    effort: str | None = None  # without effect
    summary: str | None = None  # without effect: reasoning comes whole


class TextConfig(msgspec.Struct, kw_only=True, omit_defaults=True):
    format: dict[str, Any] | None = None  # of type `text`, `json_object` or `json_schema`
    verbosity: str | None = None  # without effect


class ResponseBody(msgspec.Struct, kw_only=True):
    """The body of `POST /v1/responses`.

    `input` is a string or a list of items of type `message`, `reasoning`, `function_call`, `function_call_output`,
    `custom_tool_call`, `custom_tool_call_output` and `item_reference`; others are refused. `previous_response_id` and
    item references name answers of this session, unless these were asked for with `store: false`. The instructions of
    a previous response are not carried over. Tools are functions, custom tools and
    namespaces of both. A custom tool's grammar is shown to the policy but not enforced. Tools of type `web_search`,
    `web_search_preview`, `image_generation` and `tool_search` are left out and named as ignored. `temperature` and
    `top_p` are accepted if they are valid, but the job's values are used. `tool_choice` is `auto`, `none`, `required`
    or names a tool. `include` may have `reasoning.encrypted_content` and `message.output_text.logprobs`; `top_logprobs`
    from 1 on asks for logprobs as well. `conversation`, `prompt` and `background` are refused.
    Any other field is ignored, and the response header `X-SeamlessFlow-Ignored` names it.
    """

    input: str | list[dict[str, Any]]
    model: str | None = None
    instructions: str | None = None
    tools: list[dict[str, Any]] | None = None
    tool_choice: str | dict[str, Any] | None = None
    parallel_tool_calls: bool | None = None  # false has an effect only on forced or strict calls
    max_output_tokens: int | None = None
    stream: bool | None = None
    store: bool | None = None  # false: later requests cannot name the response
    include: list[str] | None = None
    top_logprobs: int | None = None  # likeliest tokens with each token of the text
    reasoning: ReasoningConfig | None = None
    text: TextConfig | None = None
    metadata: dict[str, str] | None = None  # given back
    # Overridden by the job.
    temperature: float | None = None
    top_p: float | None = None
    previous_response_id: str | None = None
    # Refused unless the value has no effect.
    conversation: Any = None
    prompt: Any = None
    background: bool | None = None
    truncation: str | None = None


class OutputText(msgspec.Struct, kw_only=True, tag_field="type", tag="output_text"):
    text: str
    annotations: list[Any] = []
    logprobs: list[TokenLogprob] = []  # if the request asked for them


class ReasoningText(msgspec.Struct, kw_only=True, tag_field="type", tag="reasoning_text"):
    text: str


class MessageItem(msgspec.Struct, kw_only=True, tag_field="type", tag="message"):
    id: str
    role: Literal["assistant"] = "assistant"
    status: ResponseStatus
    content: list[OutputText]


class ReasoningItem(msgspec.Struct, kw_only=True, tag_field="type", tag="reasoning"):
    id: str
    status: ResponseStatus
    summary: list[Any] = []
    content: list[ReasoningText]
    encrypted_content: str | None  # hand it back unchanged; null unless the request includes it


class FunctionCallItem(msgspec.Struct, kw_only=True, tag_field="type", tag="function_call"):
    id: str
    call_id: str
    name: str
    namespace: str | msgspec.UnsetType = msgspec.UNSET  # of the tool, if it has one
    arguments: str  # JSON
    status: ResponseStatus


class CustomCallItem(msgspec.Struct, kw_only=True, tag_field="type", tag="custom_tool_call"):
    id: str
    call_id: str
    name: str
    namespace: str | msgspec.UnsetType = msgspec.UNSET  # of the tool, if it has one
    input: str
    status: ResponseStatus


OutputItem = MessageItem | ReasoningItem | FunctionCallItem | CustomCallItem


class InputTokens(msgspec.Struct, kw_only=True):
    cached_tokens: int  # that the session's tree had before this turn
    cache_write_tokens: int = 0


class OutputTokens(msgspec.Struct, kw_only=True):
    reasoning_tokens: int


class ResponseUsage(msgspec.Struct, kw_only=True):
    input_tokens: int
    input_tokens_details: InputTokens
    output_tokens: int
    output_tokens_details: OutputTokens
    total_tokens: int


class Incomplete(msgspec.Struct, kw_only=True):
    reason: Literal["max_output_tokens"]


class Response(msgspec.Struct, kw_only=True):
    id: str
    object: Literal["response"] = "response"
    created_at: int
    status: ResponseStatus
    error: None = None
    incomplete_details: Incomplete | None
    instructions: str | None
    max_output_tokens: int | None
    metadata: dict[str, str]
    model: str  # the name of the job
    output: list[OutputItem]
    parallel_tool_calls: bool = True
    previous_response_id: str | None
    store: bool
    temperature: float  # of the job
    tool_choice: str | dict[str, Any]
    tools: list[dict[str, Any]]
    top_logprobs: int
    top_p: float = 1.0
    truncation: str = "disabled"
    usage: ResponseUsage | None  # null until the response ends


class ResponseItems(msgspec.Struct, kw_only=True):
    """The items of a conversation before a response, the newest first, without reasoning."""

    object: Literal["list"] = "list"
    data: list[dict[str, Any]]
    has_more: bool = False
    first_id: str | None = None
    last_id: str | None = None


class ResponseEvent(msgspec.Struct, kw_only=True, omit_defaults=True):
    """One event of a stream, named by its `type`; each type has some of the fields.

    `response.created`, `.in_progress`, `.completed` and `.incomplete` have `response`; `response.output_item.added` and
    `.done` have `item`; `response.content_part.added` and `.done` have `part`; deltas have `delta`, and the event that
    ends them has all of the text.
    """

    type: str
    sequence_number: int
    response: Response | None = None
    output_index: int | None = None
    item_id: str | None = None
    item: OutputItem | None = None
    content_index: int | None = None
    part: OutputText | ReasoningText | None = None
    delta: str | None = None
    text: str | None = None
    arguments: str | None = None
    input: str | None = None
    logprobs: list[TokenLogprob] | None = None


class ResponseErrorDetail(msgspec.Struct, kw_only=True):
    type: str
    message: str
    param: str | None
    code: str | None


class ResponseError(msgspec.Struct, kw_only=True, tag_field="type", tag="error"):
    """The last event of a stream that failed."""

    sequence_number: int
    message: str
    param: str | None
    code: str | None
    error: ResponseErrorDetail  # the same, where clients look that read errors of Chat Completions
