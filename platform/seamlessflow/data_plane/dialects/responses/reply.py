"""A response in the form that OpenAI's clients read: one JSON object, or the named events of a stream.

A stream has one item at a time: reasoning, a message, or a call. An item ends when a delta of another kind comes. The
response at the end of a stream has the items as they were streamed.
"""

from collections.abc import Sequence
from typing import Any

import msgspec

from seamlessflow.core.protocol.openai_chat import TokenLogprob
from seamlessflow.core.protocol.openai_responses import (
    CustomCallItem,
    FunctionCallItem,
    Incomplete,
    InputTokens,
    MessageItem,
    OutputItem,
    OutputText,
    OutputTokens,
    ReasoningItem,
    ReasoningText,
    Response,
    ResponseError,
    ResponseErrorDetail,
    ResponseEvent,
    ResponseStatus,
    ResponseUsage,
)
from seamlessflow.core.trajectory.prefix_tree import TOKEN_BYTES
from seamlessflow.data_plane.dialects.events import KEEPALIVE, named_event
from seamlessflow.data_plane.dialects.likeliest import token_logprobs
from seamlessflow.data_plane.dialects.reasoning_seal import reasoning_seal
from seamlessflow.data_plane.dialects.responses.request import ResponseOptions
from seamlessflow.data_plane.dialects.responses.tools import CUSTOM_PREFIX, RAW_PREFIX, custom_input
from seamlessflow.data_plane.errors import ApiError
from seamlessflow.data_plane.turns.rendering.content_tokens import ContentTokens
from seamlessflow.data_plane.turns.rendering.parsers.deltas import Delta, ToolCall
from seamlessflow.data_plane.turns.trajectory_manager.live import Choice, Turn


class ResponsesReply:
    """Encodes the answer of one turn."""

    def __init__(self, turn: Turn, options: ResponseOptions, *, created_s: int) -> None:
        self._turn = turn
        self._choice = turn.choices[0]
        self._options = options
        self._created_s = created_s
        self._num_events = 0
        self._num_calls = 0
        self._done: list[OutputItem] = []
        self._open: MessageItem | ReasoningItem | None = None
        self._texts: list[str] = []  # the text of the open item
        self._content = ContentTokens(self._choice.text) if options.has_logprobs else None
        self._num_read = 0  # tokens whose logprobs were looked for
        self._fresh: list[TokenLogprob] = []  # of content that no event has had yet
        self._shown: list[TokenLogprob] = []  # of the open item

    def whole(self) -> bytes:
        parsed = self._choice.text.parsed
        items: list[OutputItem] = []
        if parsed.reasoning:
            items.append(self._reasoning_item(0, parsed.reasoning))
        if parsed.content or not parsed.tool_calls:
            self._read_logprobs(is_last=True)
            items.append(self._message_item(len(items), parsed.content, self._fresh))
        items += [self._call_item(number, call) for number, call in enumerate(parsed.tool_calls)]
        return msgspec.json.encode(self._response(self._end_status(), items))

    def opening(self) -> bytes:
        begun = self._response("in_progress", [])
        return self._event("response.created", response=begun) + self._event(
            "response.in_progress", response=begun
        )

    def deltas(self, choice: Choice, deltas: Sequence[Delta]) -> bytes:
        self._read_logprobs()
        return b"".join(map(self._delta, deltas))

    def keepalive(self) -> bytes:
        return KEEPALIVE

    def closing(self) -> bytes:
        self._read_logprobs(is_last=True)
        self._taken()
        ended = self._end(self._end_status())
        if not any(not isinstance(item, ReasoningItem) for item in self._done):
            ended += self._begin(self._message_item(len(self._done), "")) + self._end(self._end_status())
        status = self._end_status()
        return ended + self._event(f"response.{status}", response=self._response(status, self._done))

    def failure(self, error: ApiError) -> bytes:
        kind = "server_error" if error.status >= 500 else "invalid_request_error"
        detail = ResponseErrorDetail(type=kind, message=error.message, param=error.param, code=error.code)
        body = ResponseError(
            sequence_number=self._num_events,
            message=error.message,
            param=error.param,
            code=error.code,
            error=detail,
        )
        return named_event("error", body)

    def _delta(self, delta: Delta) -> bytes:
        if delta.tool_call is not None:
            return self._call(delta.tool_call)
        text = delta.reasoning or delta.content
        begun = b""
        if delta.reasoning and not isinstance(self._open, ReasoningItem):
            begun = self._end() + self._begin(self._reasoning_item(len(self._done), ""))
        elif delta.content and not isinstance(self._open, MessageItem):
            begun = self._end() + self._begin(self._message_item(len(self._done), ""))
        self._texts.append(text)
        logprobs = self._logprobs(self._taken())
        return begun + self._event(f"{self._prefix}.delta", **self._position, delta=text, **logprobs)

    def _call(self, call: ToolCall) -> bytes:
        ended, item = self._end(), self._call_item(self._num_calls, call)
        self._num_calls += 1
        position = {"output_index": len(self._done), "item_id": item.id}
        begun: OutputItem
        if isinstance(item, CustomCallItem):
            name, text, fields = "response.custom_tool_call_input", item.input, {"input": item.input}
            begun = msgspec.structs.replace(item, input="", status="in_progress")
        else:
            name, text, fields = (
                "response.function_call_arguments",
                item.arguments,
                {"arguments": item.arguments},
            )
            begun = msgspec.structs.replace(item, arguments="", status="in_progress")
        added = self._event("response.output_item.added", output_index=len(self._done), item=begun)
        grown = self._event(f"{name}.delta", **position, delta=text) + self._event(
            f"{name}.done", **position, **fields
        )
        done = self._event("response.output_item.done", output_index=len(self._done), item=item)
        self._done.append(item)
        return ended + added + grown + done

    def _begin(self, item: MessageItem | ReasoningItem) -> bytes:
        """Open an item with its one part."""
        self._open, self._texts, self._shown = item, [], []
        begun = msgspec.structs.replace(item, content=[], status="in_progress")
        added = self._event("response.output_item.added", output_index=len(self._done), item=begun)
        return added + self._event("response.content_part.added", **self._position, part=self._part(""))

    def _end(self, status: ResponseStatus = "completed") -> bytes:
        """Close the open item, if there is one."""
        if self._open is None:
            return b""
        text, number, shown = "".join(self._texts), len(self._done), self._shown
        events = self._event(f"{self._prefix}.done", **self._position, text=text, **self._logprobs(shown))
        events += self._event("response.content_part.done", **self._position, part=self._part(text))
        is_reasoning = isinstance(self._open, ReasoningItem)
        item = self._reasoning_item(number, text) if is_reasoning else self._message_item(number, text, shown)
        item.status = status
        self._open = None
        self._done.append(item)
        return events + self._event("response.output_item.done", output_index=number, item=item)

    @property
    def _prefix(self) -> str:
        is_reasoning = isinstance(self._open, ReasoningItem)
        return "response.reasoning_text" if is_reasoning else "response.output_text"

    @property
    def _position(self) -> dict[str, Any]:
        assert self._open is not None
        return {"output_index": len(self._done), "item_id": self._open.id, "content_index": 0}

    def _logprobs(self, entries: list[TokenLogprob]) -> dict[str, Any]:
        return {"logprobs": entries} if isinstance(self._open, MessageItem) else {}

    def _taken(self) -> list[TokenLogprob]:
        """Give the open message the logprobs that no event has had yet, and return them."""
        if not isinstance(self._open, MessageItem):
            return []
        taken, self._fresh = self._fresh, []
        self._shown += taken
        return taken

    def _read_logprobs(self, *, is_last: bool = False) -> None:
        """Look for the tokens of content among those sampled since the last time."""
        if self._content is None:
            return
        progress = self._choice.progress
        numbers = self._content.push(bytes(progress.token_ids[self._num_read * TOKEN_BYTES :]))
        self._num_read = progress.num_tokens
        if is_last:
            numbers += self._content.finish()
        if numbers:
            entries = token_logprobs(self._turn, self._choice, numbers[0])
            self._fresh += [entries[number - numbers[0]] for number in numbers]

    def _part(self, text: str) -> OutputText | ReasoningText:
        is_reasoning = isinstance(self._open, ReasoningItem)
        return ReasoningText(text=text) if is_reasoning else OutputText(text=text, logprobs=self._shown)

    def _reasoning_item(self, number: int, text: str) -> ReasoningItem:
        sealed = reasoning_seal(text) if self._options.has_encrypted_reasoning and text else None
        return ReasoningItem(
            id=self._item_id("rs_", number),
            status="completed",
            content=[ReasoningText(text=text)],
            encrypted_content=sealed,
        )

    def _message_item(self, number: int, text: str, logprobs: Sequence[TokenLogprob] = ()) -> MessageItem:
        content = [OutputText(text=text, logprobs=list(logprobs))]
        return MessageItem(id=self._item_id("msg_", number), status=self._end_status(), content=content)

    def _call_item(self, number: int, call: ToolCall) -> FunctionCallItem | CustomCallItem:
        call_id = self._choice.call_id(number)
        namespace, name = self._options.namespaces.get(call.name, (msgspec.UNSET, call.name))
        if call.name not in self._options.custom_tools:
            return FunctionCallItem(
                id=self._item_id("fc_", number),
                call_id=call_id,
                name=name,
                namespace=namespace,
                arguments=call.arguments,
                status="completed",
            )
        text, is_raw = custom_input(call.arguments)
        return CustomCallItem(
            id=self._item_id(RAW_PREFIX if is_raw else CUSTOM_PREFIX, number),
            call_id=call_id,
            name=name,
            namespace=namespace,
            input=text,
            status="completed",
        )

    def _item_id(self, prefix: str, number: int) -> str:
        return f"{prefix}{self._turn.turn_id.hex}{number:02x}"

    def _end_status(self) -> ResponseStatus:
        return "incomplete" if self._choice.finish_reason == "length" else "completed"

    def _response(self, status: ResponseStatus, output: list[OutputItem]) -> Response:
        options = self._options
        return Response(
            id=f"resp_{self._turn.turn_id.hex}",
            created_at=self._created_s,
            status=status,
            incomplete_details=Incomplete(reason="max_output_tokens") if status == "incomplete" else None,
            instructions=options.instructions,
            max_output_tokens=options.max_output_tokens,
            metadata=options.metadata,
            model=self._turn.session.job.name,
            output=output,
            previous_response_id=options.previous,
            store=options.is_stored,
            temperature=options.temperature,
            tool_choice=options.tool_choice,
            tools=options.tools,
            top_logprobs=options.num_top,
            usage=None if status == "in_progress" else self._usage(),
        )

    def _usage(self) -> ResponseUsage:
        num_prompt, num_sampled = self._turn.plan.num_prompt_tokens, self._choice.progress.num_tokens
        return ResponseUsage(
            input_tokens=num_prompt,
            input_tokens_details=InputTokens(cached_tokens=self._turn.plan.num_cached_tokens),
            output_tokens=num_sampled,
            output_tokens_details=OutputTokens(reasoning_tokens=self._choice.num_reasoning_tokens),
            total_tokens=num_prompt + num_sampled,
        )

    def _event(self, name: str, **fields: Any) -> bytes:
        event = ResponseEvent(type=name, sequence_number=self._num_events, **fields)
        self._num_events += 1
        return named_event(name, event)
