"""A message in the form that Anthropic's clients read: one JSON object, or the named events of a stream.

A stream has one block at a time: thinking, text, or a tool's input. A block ends when a delta of another kind comes.
"""

from collections.abc import Sequence

import msgspec

from seamlessflow.core.protocol.anthropic_messages import (
    Block,
    BlockDelta,
    BlockStart,
    BlockStop,
    InputJsonDelta,
    Message,
    MessageDelta,
    MessageEnd,
    MessageErrorBody,
    MessageOutputTokens,
    MessageStart,
    MessageStop,
    MessageUsage,
    Ping,
    SignatureDelta,
    StopReason,
    TextBlock,
    TextDelta,
    ThinkingBlock,
    ThinkingDelta,
    ToolUseBlock,
)
from seamlessflow.data_plane.dialects.events import named_event
from seamlessflow.data_plane.dialects.messages.conversation import input_of
from seamlessflow.data_plane.dialects.messages.errors import message_error
from seamlessflow.data_plane.dialects.messages.request import MessageOptions
from seamlessflow.data_plane.dialects.reasoning_seal import reasoning_seal
from seamlessflow.data_plane.errors import ApiError
from seamlessflow.data_plane.turns.rendering.parsers.deltas import Delta, ToolCall
from seamlessflow.data_plane.turns.trajectory_manager.live import Choice, Turn

_encode = msgspec.json.encode
_Event = (
    MessageStart | BlockStart | BlockDelta | BlockStop | MessageDelta | MessageStop | MessageErrorBody | Ping
)


class MessagesReply:
    """Encodes the answer of one turn."""

    def __init__(self, turn: Turn, options: MessageOptions) -> None:
        self._turn = turn
        self._choice = turn.choices[0]
        self._options = options
        self._open: type[Block] | None = None
        self._index = -1  # of the newest block
        self._num_calls = 0
        self._has_answered = False  # with a block of text or a tool's input

    def whole(self) -> bytes:
        return _encode(self._message(self._blocks(), self._stop_reason(), self._choice.text.stopped_by))

    def opening(self) -> bytes:
        return _event(MessageStart(message=self._message([], None, None)))

    def deltas(self, choice: Choice, deltas: Sequence[Delta]) -> bytes:
        return b"".join(map(self._delta, deltas))

    def keepalive(self) -> bytes:
        return _event(Ping())

    def closing(self) -> bytes:
        empty = b"" if self._has_answered else self._begin(TextBlock(text=""))
        end = MessageEnd(stop_reason=self._stop_reason(), stop_sequence=self._choice.text.stopped_by)
        last = _event(MessageDelta(delta=end, usage=self._usage())) + _event(MessageStop())
        return empty + self._end() + last

    def failure(self, error: ApiError) -> bytes:
        return _event(message_error(error))

    def _delta(self, delta: Delta) -> bytes:
        if delta.tool_call is not None:
            return self._tool_use(delta.tool_call)
        if delta.reasoning:
            return self._thinking(delta.reasoning)
        begun = b"" if self._open is TextBlock else self._begin(TextBlock(text=""))
        return begun + self._grow(TextDelta(text=delta.content))

    def _thinking(self, reasoning: str) -> bytes:
        if not self._options.has_thinking:
            return b""
        is_begun = self._open is ThinkingBlock
        begun = b"" if is_begun else self._begin(ThinkingBlock(thinking="", signature=""))
        is_shown = not self._options.is_thinking_omitted
        return begun + (self._grow(ThinkingDelta(thinking=reasoning)) if is_shown else b"")

    def _tool_use(self, call: ToolCall) -> bytes:
        block = ToolUseBlock(id=self._choice.call_id(self._num_calls), name=call.name, input={})
        self._num_calls += 1
        arguments = _encode(input_of(call.arguments)).decode()
        return self._begin(block) + self._grow(InputJsonDelta(partial_json=arguments))

    def _begin(self, block: Block) -> bytes:
        ended = self._end()
        self._open, self._index = type(block), self._index + 1
        self._has_answered |= not isinstance(block, ThinkingBlock)
        return ended + _event(BlockStart(index=self._index, content_block=block))

    def _grow(self, delta: TextDelta | ThinkingDelta | SignatureDelta | InputJsonDelta) -> bytes:
        return _event(BlockDelta(index=self._index, delta=delta))

    def _end(self) -> bytes:
        if self._open is None:
            return b""
        signed = b""
        if self._open is ThinkingBlock:
            seal = reasoning_seal(self._choice.text.parsed.reasoning)
            signed = self._grow(SignatureDelta(signature=seal))
        self._open = None
        return signed + _event(BlockStop(index=self._index))

    def _blocks(self) -> list[Block]:
        parsed = self._choice.text.parsed
        blocks: list[Block] = []
        if parsed.reasoning and self._options.has_thinking:
            shown = "" if self._options.is_thinking_omitted else parsed.reasoning
            blocks.append(ThinkingBlock(thinking=shown, signature=reasoning_seal(parsed.reasoning)))
        if parsed.content or not parsed.tool_calls:
            blocks.append(TextBlock(text=parsed.content))
        for number, call in enumerate(parsed.tool_calls):
            asked = input_of(call.arguments)
            blocks.append(ToolUseBlock(id=self._choice.call_id(number), name=call.name, input=asked))
        return blocks

    def _message(self, content: list[Block], reason: StopReason | None, stop: str | None) -> Message:
        return Message(
            id=f"msg_{self._turn.turn_id.hex}",
            model=self._turn.session.job.name,
            content=content,
            stop_reason=reason,
            stop_sequence=stop,
            usage=self._usage(),
        )

    def _stop_reason(self) -> StopReason:
        if self._choice.text.stopped_by is not None:
            return "stop_sequence"
        reasons: dict[str, StopReason] = {"length": "max_tokens", "tool_calls": "tool_use"}
        return reasons.get(self._choice.finish_reason, "end_turn")

    def _usage(self) -> MessageUsage:
        plan, choice = self._turn.plan, self._choice
        num_cached = plan.num_cached_tokens if self._options.asks_for_caching else 0
        return MessageUsage(
            input_tokens=plan.num_prompt_tokens - num_cached,
            output_tokens=choice.progress.num_tokens,
            cache_read_input_tokens=num_cached,
            output_tokens_details=MessageOutputTokens(thinking_tokens=choice.num_reasoning_tokens),
        )


def _event(event: _Event) -> bytes:
    return named_event(str(event.__struct_config__.tag), event)
