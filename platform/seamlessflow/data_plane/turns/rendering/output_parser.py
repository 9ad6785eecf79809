"""Finds reasoning and tool calls (Hermes style) in a model's text, incrementally.

`OutputParser` takes text in pieces and returns `Delta`s: reasoning from a leading `<think>…</think>`, tool calls from
`<tool_call>{"name": …, "arguments": {…}}</tool_call>`, and the content around them. A tool call with other JSON stays
content, marks included. Invariant: the deltas do not depend on how the text was cut into pieces.
"""

from dataclasses import dataclass, field
from enum import Enum, auto

import msgspec

THINK, END_THINK = "<think>", "</think>"
CALL, END_CALL = "<tool_call>", "</tool_call>"


@dataclass(frozen=True, slots=True)
class ToolCall:
    name: str
    arguments: str  # JSON text


@dataclass(frozen=True, slots=True)
class Delta:
    content: str = ""
    reasoning: str = ""
    tool_call: ToolCall | None = None


@dataclass(slots=True)
class ParsedOutput:
    """The deltas of a whole answer, joined."""

    content: str = ""
    reasoning: str = ""
    tool_calls: list[ToolCall] = field(default_factory=list)

    def add(self, delta: Delta) -> None:
        self.content += delta.content
        self.reasoning += delta.reasoning
        if delta.tool_call is not None:
            self.tool_calls.append(delta.tool_call)


class _State(Enum):
    START = auto()
    REASONING = auto()
    CONTENT = auto()
    CALL = auto()


class OutputParser:
    """START → REASONING → CONTENT ⇄ CALL; `push` moves it, `finish` ends it."""

    def __init__(self, *, has_tools: bool, starts_in_reasoning: bool = False) -> None:
        self._has_tools = has_tools
        self._state = _State.REASONING if starts_in_reasoning else _State.START
        self._held = ""
        self._space = ""  # white space that may precede a tool call
        self._has_content = False
        self._is_after_mark = False

    def push(self, text: str) -> list[Delta]:
        self._held += text
        deltas: list[Delta] = []
        while self._step(deltas):
            pass
        return deltas

    def finish(self) -> list[Delta]:
        """Return the remaining deltas; an unfinished tool call becomes content."""
        deltas: list[Delta] = []
        if self._state is _State.REASONING:
            deltas += [Delta(reasoning=self._held)] if self._held else []
        else:
            rest = (CALL if self._state is _State.CALL else "") + self._held
            self._emit_content(rest, deltas)
            if self._space and self._has_content and not self._is_after_mark:
                deltas.append(Delta(content=self._space))
        self._held = self._space = ""
        return deltas

    def _step(self, deltas: list[Delta]) -> bool:
        """Make one move. Returns False if it needs more text."""
        match self._state:
            case _State.START:
                return self._step_start()
            case _State.REASONING:
                return self._step_reasoning(deltas)
            case _State.CONTENT:
                return self._step_content(deltas)
            case _State.CALL:
                return self._step_call(deltas)

    def _step_start(self) -> bool:
        text = self._held.lstrip()
        if text.startswith(THINK):
            self._held = text[len(THINK) :]
            self._state = _State.REASONING
            return True
        if THINK.startswith(text):
            return False  # so far only white space or the beginning of the mark
        self._state = _State.CONTENT
        return True

    def _step_reasoning(self, deltas: list[Delta]) -> bool:
        reasoning, mark, rest = self._held.partition(END_THINK)
        if mark:
            deltas += [Delta(reasoning=reasoning)] if reasoning else []
            self._held, self._state, self._is_after_mark = rest, _State.CONTENT, True
            return True
        num_safe = len(self._held) - _overlap(self._held, END_THINK)
        if num_safe:
            deltas.append(Delta(reasoning=self._held[:num_safe]))
            self._held = self._held[num_safe:]
        return False

    def _step_content(self, deltas: list[Delta]) -> bool:
        if not self._has_tools:
            self._emit_content(self._held, deltas)
            self._held = ""
            return False
        before, mark, rest = self._held.partition(CALL)
        if mark:
            self._emit_content(before, deltas)
            self._space, self._held, self._state = "", rest, _State.CALL
            return True
        num_safe = len(self._held) - _overlap(self._held, CALL)
        self._emit_content(self._held[:num_safe], deltas)
        self._held = self._held[num_safe:]
        return False

    def _step_call(self, deltas: list[Delta]) -> bool:
        body, mark, rest = self._held.partition(END_CALL)
        if not mark:
            return False
        self._held, self._state = rest, _State.CONTENT
        call = _parse_call(body)
        if call is None:
            self._emit_content(CALL + body + END_CALL, deltas)
        else:
            deltas.append(Delta(tool_call=call))
            self._is_after_mark = True
        return True

    def _emit_content(self, text: str, deltas: list[Delta]) -> None:
        """Emit text; hold back trailing white space, and drop white space around marks."""
        text = self._space + text
        if self._is_after_mark:
            text = text.lstrip()
        shown = text.rstrip()
        self._space = text[len(shown) :]
        if shown:
            deltas.append(Delta(content=shown))
            self._has_content, self._is_after_mark = True, False


class PlainParser:
    """Takes every text as content."""

    def push(self, text: str) -> list[Delta]:
        return [Delta(content=text)]

    def finish(self) -> list[Delta]:
        return []


def parse_output(text: str, *, has_tools: bool, starts_in_reasoning: bool = False) -> ParsedOutput:
    """Parse a whole answer at once."""
    parser = OutputParser(has_tools=has_tools, starts_in_reasoning=starts_in_reasoning)
    parsed = ParsedOutput()
    for delta in parser.push(text) + parser.finish():
        parsed.add(delta)
    return parsed


def _parse_call(body: str) -> ToolCall | None:
    try:
        call = msgspec.json.decode(body.strip())
    except msgspec.DecodeError:
        return None
    if not isinstance(call, dict) or not isinstance(call.get("name"), str):
        return None
    arguments = call.get("arguments", {})
    return ToolCall(
        call["name"], arguments if isinstance(arguments, str) else msgspec.json.encode(arguments).decode()
    )


def _overlap(text: str, mark: str) -> int:
    """Return the length of the longest suffix of `text` that is a proper prefix of `mark`."""
    for length in range(min(len(text), len(mark) - 1), 0, -1):
        if text.endswith(mark[:length]):
            return length
    return 0
