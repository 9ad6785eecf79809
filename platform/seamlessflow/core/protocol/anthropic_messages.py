"""Anthropic's Messages as the gateway reads and answers them: the fields that can change an answer.

Defines the types of a body, of an answer, of the events of a stream, and of errors. Invariant: a field of Anthropic's
API that is missing here does not change an answer (metadata, service_tier, …).
"""

from datetime import datetime
from typing import Any, Literal

import msgspec


class ThinkingConfig(msgspec.Struct, kw_only=True, omit_defaults=True):
    """Unless it is given and not `disabled`, the answer has no thinking blocks; the policy may think all the same."""

    type: Literal["enabled", "adaptive", "between_tools", "disabled"]
    display: Literal["summarized", "omitted"] | None = None
    budget_tokens: int | None = None  # without effect


class MessageToolChoice(msgspec.Struct, kw_only=True, omit_defaults=True):
    type: str  # `auto`, `any`, `tool` or `none`
    name: str | None = None  # of the tool that must be called
    disable_parallel_tool_use: bool | None = None  # has an effect only on forced or strict calls


class OutputConfig(msgspec.Struct, kw_only=True, omit_defaults=True):
    effort: str | None = None  # without effect
    format: dict[str, Any] | None = None  # of type `json_schema`, with a `schema`


class MessageTool(msgspec.Struct, kw_only=True, omit_defaults=True):
    """A tool of the client. Tools that Anthropic runs or defines are refused."""

    name: str
    type: str | None = None
    description: str | None = None
    input_schema: dict[str, Any] | None = None
    strict: bool | None = None  # calls follow the schema
    cache_control: Any = None


class TokensBody(msgspec.Struct, kw_only=True):
    """The body of `POST /v1/messages/count_tokens`.

    Messages have blocks of type `text`, `thinking`, `redacted_thinking`, `tool_use` and `tool_result`; others, such as
    images, are refused. `cache_control` is accepted everywhere; the usage then says
    which tokens were cached. `thread` and `compaction` are
    refused: a request carries its whole conversation.
    """

    messages: list[dict[str, Any]]
    model: str | None = None
    system: str | list[dict[str, Any]] | None = None
    tools: list[MessageTool] | None = None
    tool_choice: MessageToolChoice | None = None
    thinking: ThinkingConfig | None = None
    output_config: OutputConfig | None = None
    cache_control: Any = None
    # Refused.
    thread: Any = None
    compaction: Any = None


class MessagesBody(TokensBody, kw_only=True):
    """The body of `POST /v1/messages`.

    `temperature`, `top_p` and `top_k` are accepted if they are valid, but the job's values are used. Any other field is
    ignored, and the response header `X-SeamlessFlow-Ignored` names it.
    """

    max_tokens: int
    stop_sequences: list[str] | None = None
    stream: bool | None = None
    # Overridden by the job.
    temperature: float | None = None
    top_p: float | None = None
    top_k: int | None = None


class TextBlock(msgspec.Struct, kw_only=True, tag_field="type", tag="text"):
    text: str


class ThinkingBlock(msgspec.Struct, kw_only=True, tag_field="type", tag="thinking"):
    thinking: str
    signature: str  # hand it back unchanged


class ToolUseBlock(msgspec.Struct, kw_only=True, tag_field="type", tag="tool_use"):
    """A call whose arguments are not a JSON object has them in `input` as `{"_arguments": …}`."""

    id: str
    name: str
    input: dict[str, Any]


Block = TextBlock | ThinkingBlock | ToolUseBlock
StopReason = Literal["end_turn", "max_tokens", "stop_sequence", "tool_use"]


class MessageOutputTokens(msgspec.Struct, kw_only=True):
    thinking_tokens: int  # also where the answer has no thinking blocks


class MessageUsage(msgspec.Struct, kw_only=True):
    """The prompt has `input_tokens` and `cache_read_input_tokens` together."""

    input_tokens: int
    output_tokens: int
    cache_creation_input_tokens: int = 0
    cache_read_input_tokens: int  # that the session's tree had before this turn; 0 without `cache_control`
    output_tokens_details: MessageOutputTokens


class Message(msgspec.Struct, kw_only=True):
    id: str
    type: Literal["message"] = "message"
    role: Literal["assistant"] = "assistant"
    model: str  # the name of the job
    content: list[Block]
    stop_reason: StopReason | None  # null in the event that begins a stream
    stop_sequence: str | None
    usage: MessageUsage


class TextDelta(msgspec.Struct, kw_only=True, tag_field="type", tag="text_delta"):
    text: str


class ThinkingDelta(msgspec.Struct, kw_only=True, tag_field="type", tag="thinking_delta"):
    thinking: str


class SignatureDelta(msgspec.Struct, kw_only=True, tag_field="type", tag="signature_delta"):
    signature: str


class InputJsonDelta(msgspec.Struct, kw_only=True, tag_field="type", tag="input_json_delta"):
    partial_json: str


class MessageEnd(msgspec.Struct, kw_only=True):
    stop_reason: StopReason
    stop_sequence: str | None


class MessageErrorDetails(msgspec.Struct, kw_only=True):
    """Asks a client that keeps its conversation in a thread to send it whole, without `thread`."""

    error_code: Literal["thread_unsupported_request"] = "thread_unsupported_request"


class MessageError(msgspec.Struct, kw_only=True):
    type: str  # invalid_request_error, authentication_error, overloaded_error, api_error, …
    message: str
    param: str | None = None  # the field that is at fault
    code: str | None = None  # a word for programs, such as session_closed
    details: MessageErrorDetails | msgspec.UnsetType = msgspec.UNSET


class MessageStart(msgspec.Struct, kw_only=True, tag_field="type", tag="message_start"):
    message: Message


class BlockStart(msgspec.Struct, kw_only=True, tag_field="type", tag="content_block_start"):
    index: int
    content_block: Block


class BlockDelta(msgspec.Struct, kw_only=True, tag_field="type", tag="content_block_delta"):
    index: int
    delta: TextDelta | ThinkingDelta | SignatureDelta | InputJsonDelta


class BlockStop(msgspec.Struct, kw_only=True, tag_field="type", tag="content_block_stop"):
    index: int


class MessageDelta(msgspec.Struct, kw_only=True, tag_field="type", tag="message_delta"):
    delta: MessageEnd
    usage: MessageUsage


class MessageStop(msgspec.Struct, kw_only=True, tag_field="type", tag="message_stop"):
    pass


class Ping(msgspec.Struct, kw_only=True, tag_field="type", tag="ping"):
    pass


class MessageErrorBody(msgspec.Struct, kw_only=True, tag_field="type", tag="error"):
    """An error in the form that Anthropic's clients read, as a body or as the last event of a stream."""

    error: MessageError


class MessageModel(msgspec.Struct, kw_only=True):
    """The session's model as Anthropic's clients read it."""

    type: Literal["model"] = "model"
    id: str  # the name of the session's job
    display_name: str
    created_at: datetime
    lifecycle: Literal["active"] = "active"
    max_input_tokens: int  # of a prompt and its answer together
    max_tokens: int  # of an answer


class MessageModelList(msgspec.Struct, kw_only=True):
    """The one page of a list."""

    data: list[MessageModel]
    has_more: bool = False
    first_id: str
    last_id: str


class TokenCount(msgspec.Struct, kw_only=True):
    input_tokens: int
