"""The parser of formats that put tool calls between marks: leading reasoning, then content and calls in any order.

A `CallSyntax` describes one format. A call is passed on when it has ended, because only then is it known to be whole.
A call that cannot be read, or that the answer's end cuts short, stays content, marks included.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import Enum, auto

from seamlessflow.data_plane.turns.rendering.parsers.deltas import Delta, ToolCall, Tools
from seamlessflow.data_plane.turns.rendering.parsers.marks import first_mark, num_held

THINK_MARKS = ("<think>", "</think>")


@dataclass(frozen=True, slots=True)
class CallSyntax:
    """One call format.

    opening, closing: the marks of a call. Without a closing mark, it ends at the next opening mark or with the text.
    read: returns the calls of a whole body, or None if it cannot be read.
    leads, trails: marks around a series of calls.
    bare: an answer whose content begins with this text may be a call without an opening mark.
    """

    opening: str
    closing: str
    read: Callable[[str, Tools], Sequence[ToolCall] | None]
    leads: tuple[str, ...] = ()
    trails: tuple[str, ...] = ()
    bare: str = ""

    @property
    def marks(self) -> tuple[str, ...]:
        """The marks that may end content."""
        return (self.opening, *self.leads, *self.trails)

    @property
    def ends(self) -> tuple[str, ...]:
        """The marks that end a call."""
        return (self.closing or self.opening,)


class _State(Enum):
    START = auto()
    REASONING = auto()
    CONTENT = auto()
    CALL = auto()


class MarkedCallsParser:
    """START → REASONING → CONTENT ⇄ CALL; `push` moves it, `finish` ends it.

    tools: the tools of the request; None: calls are not looked for.
    """

    def __init__(
        self,
        syntax: CallSyntax,
        *,
        tools: Tools | None,
        starts_in_reasoning: bool = False,
        think: tuple[str, str] = THINK_MARKS,
    ) -> None:
        self._syntax = syntax
        self._marks, self._ends = syntax.marks, syntax.ends
        self._tools = tools
        self._think, self._end_think = think
        self._state = _State.REASONING if starts_in_reasoning else _State.START
        self._held = ""
        self._num_searched = 0  # characters of the held text that contain no end of the call
        self._opened = ""  # the text that opened the call: content again if the call cannot be read
        self._lead = ""  # a leading mark and the white space after it; dropped before a call
        self._space = ""  # white space that may precede a call
        self._has_shown = False  # content was returned
        self._is_after_mark = False
        self._is_after_call = False

    def push(self, text: str) -> list[Delta]:
        self._held += text
        deltas: list[Delta] = []
        while self._step(deltas):
            pass
        return deltas

    def finish(self) -> list[Delta]:
        deltas: list[Delta] = []
        match self._state:
            case _State.REASONING:
                deltas += [Delta(reasoning=self._held)] if self._held else []
            case _State.CALL if not self._syntax.closing:
                self._end_call(self._held, "", deltas)
                self._emit_rest("", deltas)
            case _State.CALL:
                self._emit_rest(self._opened + self._held, deltas)
            case _State.START | _State.CONTENT:
                self._emit_rest(self._held, deltas)
        self._held = self._space = self._lead = ""
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
        if text.startswith(self._think):
            self._held = text[len(self._think) :]
            self._state = _State.REASONING
            return True
        if self._think.startswith(text):
            return False  # so far only white space or the beginning of the mark
        self._state = _State.CONTENT
        return True

    def _step_reasoning(self, deltas: list[Delta]) -> bool:
        reasoning, mark, rest = self._held.partition(self._end_think)
        if mark:
            deltas += [Delta(reasoning=reasoning)] if reasoning else []
            self._held, self._state, self._is_after_mark = rest, _State.CONTENT, True
            return True
        num_safe = len(self._held) - num_held(self._held, (self._end_think,))
        if num_safe:
            deltas.append(Delta(reasoning=self._held[:num_safe]))
            self._held = self._held[num_safe:]
        return False

    def _step_content(self, deltas: list[Delta]) -> bool:
        if self._tools is None:
            self._emit_content(self._held, deltas)
            self._held = ""
            return False
        if self._syntax.bare and not self._has_shown and not self._is_after_call:
            text = self._held.lstrip()
            if text.startswith(self._syntax.bare):
                self._open_call(self._held[: len(self._held) - len(text)], text)
                return True
            if self._syntax.bare.startswith(text):
                return False
        at, mark = first_mark(self._held, self._marks)
        if mark:
            self._emit_content(self._held[:at], deltas)
            self._take_mark(mark, self._held[at + len(mark) :], deltas)
            return True
        num_safe = len(self._held) - num_held(self._held, self._marks)
        self._emit_content(self._held[:num_safe], deltas)
        self._held = self._held[num_safe:]
        return False

    def _take_mark(self, mark: str, rest: str, deltas: list[Delta]) -> None:
        if mark == self._syntax.opening:
            self._open_call(mark, rest)
            return
        self._held = rest
        if mark in self._syntax.leads:
            self._lead += mark
        elif not self._is_after_call or self._lead:
            self._emit_content(mark, deltas)

    def _open_call(self, opened: str, rest: str) -> None:
        self._opened, self._held, self._state, self._num_searched = opened, rest, _State.CALL, 0

    def _step_call(self, deltas: list[Delta]) -> bool:
        at, _ = first_mark(self._held, self._ends, self._num_searched)
        if at < 0:
            self._num_searched = max(0, len(self._held) - len(self._ends[0]) + 1)
            return False
        body = self._held[:at]
        self._held = self._held[at + len(self._syntax.closing) :]
        self._end_call(body, self._syntax.closing, deltas)
        return True

    def _end_call(self, body: str, closing: str, deltas: list[Delta]) -> None:
        self._state = _State.CONTENT
        calls = self._syntax.read(body, self._tools or ())
        if not calls:
            self._emit_content(self._opened + body + closing, deltas)
            return
        deltas += [Delta(tool_call=call) for call in calls]
        self._space = self._lead = ""
        self._is_after_mark = self._is_after_call = True

    def _emit_content(self, text: str, deltas: list[Delta]) -> None:
        """Emit text; hold back trailing white space, and drop white space around marks."""
        if self._lead:
            if not text.strip():
                self._lead += text
                return
            text, self._lead = self._lead + text, ""
        text = self._space + text
        if self._is_after_mark:
            text = text.lstrip()
        shown = text.rstrip()
        self._space = text[len(shown) :]
        if shown:
            deltas.append(Delta(content=shown))
            self._has_shown, self._is_after_mark, self._is_after_call = True, False, False

    def _emit_rest(self, text: str, deltas: list[Delta]) -> None:
        """Emit the last text of the answer; a leading mark that no call followed is content."""
        text, self._lead = self._lead + text, ""
        self._emit_content(text, deltas)
        if self._space and self._has_shown and not self._is_after_mark:
            deltas.append(Delta(content=self._space))
