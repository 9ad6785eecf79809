"""The parser of gpt-oss' harmony format: a series of messages, each with a channel and perhaps a recipient.

`<|channel|>analysis<|message|>…<|end|>` is reasoning. `<|start|>assistant<|channel|>final<|message|>…` is content, as
is a commentary without recipient. A message to `functions.f` is a call, and its text the arguments. A message that
cannot be read, a call without whole arguments, and a message to another recipient are content with their marks.
"""

import re
from enum import Enum, auto

from seamlessflow.data_plane.turns.rendering.parsers.deltas import Delta, ToolCall, Tools
from seamlessflow.data_plane.turns.rendering.parsers.json_calls import verbatim_arguments
from seamlessflow.data_plane.turns.rendering.parsers.json_scan import JsonScan
from seamlessflow.data_plane.turns.rendering.parsers.marks import first_mark, num_held

_OPENINGS = ("<|start|>", "<|channel|>")
_MESSAGE = "<|message|>"
_ENDS = ("<|end|>", "<|call|>", "<|return|>")
HARMONY_MARKS = (*_OPENINGS, _MESSAGE, *_ENDS, "<|constrain|>")
_MARK_CHARS = max(map(len, HARMONY_MARKS))
_RECIPIENT = re.compile(r"\bto=([^\s<]+)")
_CHANNEL = re.compile(r"<\|channel\|>\s*(\w+)")
_FIRST_RECIPIENT = re.compile(r"\s*to=[^\s<]+\s*")
_FUNCTIONS = "functions."


class _State(Enum):
    START = auto()  # what follows `<|start|>assistant` in the prompt
    OUTSIDE = auto()
    HEADER = auto()
    REASONING = auto()
    CONTENT = auto()
    CALL = auto()


class HarmonyParser:
    """START → HEADER or OUTSIDE; HEADER → the state of the message's kind → OUTSIDE → HEADER."""

    def __init__(
        self, *, tools: Tools | None, starts_in_reasoning: bool = False, has_one_call: bool = False
    ) -> None:
        """`has_one_call`: every call ends with a mark, so the first one needs no other reading."""
        self._has_tools = tools is not None
        self._state = _State.REASONING if starts_in_reasoning else _State.START
        self._held = ""
        self._header = ""  # the header so far, marks included
        self._num_searched = 0  # characters of the held text that contain no end of the call
        self._scan = JsonScan()
        self._first_end: tuple[int, str] | None = (
            None  # where the call ended if this mark were none of an argument's
        )
        self._is_raw = False  # the current message is content with its marks

    def push(self, text: str) -> list[Delta]:
        self._held += text
        deltas: list[Delta] = []
        while self._step(deltas):
            pass
        return deltas

    def finish(self) -> list[Delta]:
        deltas: list[Delta] = []
        while self._state is _State.CALL and self._first_end is not None:
            self._end_call(*self._first_end, deltas)
            while self._step(deltas):
                pass
        if self._state in (_State.HEADER, _State.CALL):
            self._held, self._header, self._state = self._header + self._held, "", _State.OUTSIDE
        self._emit(self._held, deltas)
        self._held = ""
        return deltas

    def _step(self, deltas: list[Delta]) -> bool:
        """Make one move. Returns False if it needs more text."""
        match self._state:
            case _State.START:
                return self._step_start()
            case _State.HEADER:
                return self._step_header(deltas)
            case _State.CALL:
                return self._step_call(deltas)
            case _:
                return self._step_text(deltas)

    def _step_start(self) -> bool:
        at, mark = first_mark(self._held, HARMONY_MARKS)
        if not mark:
            before = self._held[: len(self._held) - num_held(self._held, HARMONY_MARKS)]
            if _may_be_recipient(before):
                return False
            self._state = _State.OUTSIDE
            return True
        is_header = mark in _OPENINGS and _is_recipient(self._held[:at])
        self._state = _State.HEADER if is_header else _State.OUTSIDE
        return True

    def _step_header(self, deltas: list[Delta]) -> bool:
        at, mark = first_mark(self._held, (_MESSAGE, *_ENDS))
        if not mark:
            return False
        self._header += self._held[: at + len(mark)]
        self._held = self._held[at + len(mark) :]
        name = _function_name(self._header)
        if mark == _MESSAGE and name and self._has_tools:
            self._state, self._num_searched = _State.CALL, 0
            self._scan, self._first_end = JsonScan(), None
            return True
        if mark == _MESSAGE and (kind := _kind(self._header)) is not None:
            self._state = kind
        else:
            deltas.append(Delta(content=self._header))
            self._is_raw, self._state = True, _State.CONTENT if mark == _MESSAGE else _State.OUTSIDE
        self._header = ""
        return True

    def _step_call(self, deltas: list[Delta]) -> bool:
        at, mark = first_mark(self._held, (*_OPENINGS, *_ENDS), self._num_searched)
        if not mark:
            self._num_searched = max(self._num_searched, len(self._held) - _MARK_CHARS)
            return False
        if self._scan.is_inside(self._held[:at]):
            self._first_end = self._first_end or (at, mark)
            self._num_searched = at + len(mark)
            return True
        is_whole = verbatim_arguments(self._held[:at]) is not None
        self._end_call(*((at, mark) if is_whole else self._first_end or (at, mark)), deltas)
        return True

    def _end_call(self, at: int, mark: str, deltas: list[Delta]) -> None:
        end = at + len(mark) if mark in _ENDS else at
        arguments = verbatim_arguments(self._held[:at])
        if arguments is None:
            self._emit(self._header + self._held[:end], deltas)
        else:
            deltas.append(Delta(tool_call=ToolCall(_function_name(self._header), arguments)))
        self._held, self._header = self._held[end:], ""
        self._state = _State.OUTSIDE if mark in _ENDS else _State.HEADER

    def _step_text(self, deltas: list[Delta]) -> bool:
        is_outside = self._state is _State.OUTSIDE
        at, mark = first_mark(self._held, _OPENINGS if is_outside else (*_OPENINGS, *_ENDS))
        if not mark:
            num_safe = len(self._held) - num_held(self._held, HARMONY_MARKS)
            self._emit(self._held[:num_safe], deltas)
            self._held = self._held[num_safe:]
            return False
        self._emit(self._held[:at], deltas)
        self._held = self._held[at:]
        if mark in _ENDS:
            self._held = self._held[len(mark) :]
            if self._is_raw:
                self._emit(mark, deltas)
        self._state, self._is_raw = _State.HEADER if mark in _OPENINGS else _State.OUTSIDE, False
        return True

    def _emit(self, text: str, deltas: list[Delta]) -> None:
        if not text:
            return
        match self._state:
            case _State.REASONING:
                deltas.append(Delta(reasoning=text))
            case _:
                deltas.append(Delta(content=text))


def _may_be_recipient(text: str) -> bool:
    text = text.lstrip()
    return "to=".startswith(text[:3]) and len(text.split(maxsplit=1)) < 2


def _is_recipient(text: str) -> bool:
    return not text.strip() or _FIRST_RECIPIENT.fullmatch(text) is not None


def _function_name(header: str) -> str:
    recipient = _RECIPIENT.search(header)
    name = recipient.group(1) if recipient else ""
    return name.removeprefix(_FUNCTIONS) if name.startswith(_FUNCTIONS) else ""


def _kind(header: str) -> _State | None:
    channel = _CHANNEL.search(header)
    if channel is None or _RECIPIENT.search(header):
        return None
    kinds = {"analysis": _State.REASONING, "final": _State.CONTENT, "commentary": _State.CONTENT}
    return kinds.get(channel.group(1))
