"""The parser of formats that put tool calls between marks: leading reasoning, then content and calls in any order.

A `CallSyntax` describes one format. A call is passed on when it has ended, because only then is it known to be whole.
A mark inside an argument ends no call: the search goes on to the mark that closes a readable one. A call that lacks its
closing mark ends with the series of calls, or with the answer, if it is whole by itself. A call that cannot be read, or
that the answer's end cuts short, stays content, marks included.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import Enum, auto
from typing import Protocol

from seamlessflow.data_plane.turns.rendering.parsers.deltas import Delta, ToolCall, Tools, tool_names
from seamlessflow.data_plane.turns.rendering.parsers.json_scan import JsonScan
from seamlessflow.data_plane.turns.rendering.parsers.marks import first_mark, num_held

THINK_MARKS = ("<think>", "</think>")
_MAX_SPACE = 64  # characters within which a call goes on behind a beginning without mark


class CallScan(Protocol):
    """Follows one call that grows."""

    def is_inside(self, body: str) -> bool:
        """Return whether a mark behind `body` may be a part of an argument, which then goes on."""

    def end(self, body: str) -> int | None:
        """Return where the arguments have ended, if that shows without a closing mark."""


Reader = Callable[[str, Tools], Sequence[ToolCall] | None]


@dataclass(frozen=True, slots=True)
class CallSyntax:
    """One call format.

    opening, closing: the marks of a call. Without a closing mark, it ends at the next opening mark, or with the text.
    read: returns the calls of a whole body, or None if it cannot be read.
    leads, trails: marks around a series of calls.
    bare: an answer whose content begins with this text may be a call without an opening mark.
    read_loosely: reads a body that lacks a tag, if nothing better comes until the next call or the answer's end.
    named: how a call of an offered tool may begin without its opening mark; its name stands for `{}`.
    begins: what may follow such a beginning.
    ends_itself: whether a body shows that it is whole, as JSON does, so that its closing mark may be missing.
    """

    opening: str
    closing: str
    read: Reader
    leads: tuple[str, ...] = ()
    trails: tuple[str, ...] = ()
    bare: str = ""
    scan: Callable[[], CallScan] = JsonScan
    read_loosely: Reader = lambda body, tools: None
    named: str = ""
    begins: tuple[str, ...] = ()
    ends_itself: bool = True

    def named_marks(self, tools: Tools) -> tuple[str, ...]:
        """Return how calls of the offered tools may begin without an opening mark."""
        return tuple(self.named.format(name) for name in tool_names(tools)) if self.named else ()

    @property
    def marks(self) -> tuple[str, ...]:
        """The marks that may end content."""
        return (self.opening, *self.leads, *self.trails)

    @property
    def ends(self) -> tuple[str, ...]:
        """The marks that end a call."""
        return (self.closing or self.opening, *self.trails)


class _State(Enum):
    START = auto()
    REASONING = auto()
    CONTENT = auto()
    CALL = auto()


class MarkedCallsParser:
    """START → REASONING → CONTENT ⇄ CALL; `push` moves it, `finish` ends it.

    tools: the tools of the request; None: calls are not looked for. has_one_call: only the first call matters, so it is
    passed on as soon as its arguments have ended.
    """

    def __init__(
        self,
        syntax: CallSyntax,
        *,
        tools: Tools | None,
        starts_in_reasoning: bool = False,
        think: tuple[str, str] = THINK_MARKS,
        has_one_call: bool = False,
    ) -> None:
        self._syntax = syntax
        self._named = syntax.named_marks(tools or ())
        self._marks, self._ends = (*syntax.marks, *self._named), syntax.ends
        self._has_one_call = has_one_call
        self._tools = tools
        self._think, self._end_think = think
        self._state = _State.REASONING if starts_in_reasoning else _State.START
        self._held = ""
        self._num_searched = 0  # characters of the held text that contain no end of the call
        self._opened = ""  # the text that opened the call: content again if the call cannot be read
        self._is_named = False  # the call began without a mark
        self._named_end = 0  # where this beginning ended
        self._scan = syntax.scan()
        self._first_end: int | None = None  # where the call ended if this mark were none of an argument's
        self._loose: tuple[int, Sequence[ToolCall]] | None = (
            None  # where it ended if a tag were missing, and its value
        )
        self._lead = ""  # a leading mark and the white space after it; dropped before a call
        self._space = ""  # white space that may precede a call
        self._gap = ""  # white space that did
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
        while self._state is _State.CALL:
            self._finish_call(deltas)
            while self._step(deltas):
                pass
        if self._state is _State.REASONING:
            deltas += [Delta(reasoning=self._held)] if self._held else []
        else:
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
        if mark == self._syntax.opening or mark in self._named:
            self._open_call(mark, rest)
            return
        self._held = rest
        if mark in self._syntax.leads:
            self._lead += mark
        elif not self._is_after_call or self._lead:
            self._emit_content(mark, deltas)

    def _open_call(self, opened: str, rest: str) -> None:
        """Begin a call. A beginning without a mark is itself a part of the call."""
        self._is_named = opened in self._named
        self._opened, self._held = ("", opened + rest) if self._is_named else (opened, rest)
        self._named_end = len(opened)
        self._state, self._num_searched = _State.CALL, 0
        self._scan, self._first_end, self._loose = self._syntax.scan(), None, None

    def _step_call(self, deltas: list[Delta]) -> bool:
        if self._is_named and (is_call := self._begins_call()) is not True:
            if is_call is False:
                self._give_up(0, deltas)
            return is_call is False
        if self._has_one_call and not self._syntax.closing and self._take_first(deltas):
            return True
        at, mark = first_mark(self._held, self._ends, self._num_searched)
        if at < 0:
            self._num_searched = max(self._num_searched, len(self._held) - max(map(len, self._ends)) + 1)
            return False
        body = self._held[:at]
        if self._scan.is_inside(body):
            return self._pass_over(body, mark, deltas)
        calls, end = self._read(body)
        if calls:
            self._take_calls(calls, end, deltas)
        else:
            self._give_up(at, deltas)
        return True

    def _read(self, body: str) -> tuple[Sequence[ToolCall], int]:
        """Return the calls of a body and where they end; none if they cannot be read.

        Where no mark closes a call, white space and then text may follow its arguments.
        """
        tools = self._tools or ()
        if calls := self._syntax.read(body, tools):
            return calls, len(body)
        end = None if self._syntax.closing or not self._opened.strip() else self._scan.end(body)
        if end is None or not body[end : end + 1].isspace():
            return (), 0
        return self._syntax.read(body[:end], tools) or (), end

    def _begins_call(self) -> bool | None:
        """Return whether a call goes on behind a beginning without mark; None if it needs more text."""
        text = self._held[self._named_end : self._named_end + _MAX_SPACE].lstrip()
        if text.startswith(self._syntax.begins):
            return True
        return None if any(begin.startswith(text) for begin in self._syntax.begins) else False

    def _take_first(self, deltas: list[Delta]) -> bool:
        """Take the first call where its arguments end, even if others may follow."""
        end = self._scan.end(self._held)
        if end is None:
            return False
        body, tools = self._held[:end], self._tools or ()
        calls = self._syntax.read(body, tools) or self._syntax.read(f"{body}]", tools)
        if calls:
            self._take_calls(calls[:1], end, deltas)
        return bool(calls)

    def _pass_over(self, body: str, mark: str, deltas: list[Delta]) -> bool:
        """Pass over a mark that may belong to an argument. Returns False if it needs more text."""
        if self._first_end is None:
            self._first_end = len(body)
        may_be_loose = (
            self._loose is None and self._syntax.opening not in body
        )  # else an argument has whole calls
        if may_be_loose and (calls := self._syntax.read_loosely(body, self._tools or ())):
            self._loose = len(body), calls
        if self._loose is not None:
            end, calls = self._loose
            behind = self._held[self._behind(end) :].lstrip()
            if behind.startswith(self._syntax.opening):
                self._take_calls(calls, end, deltas)
                return True
            if self._syntax.opening.startswith(behind):
                self._num_searched = len(body)
                return False
        self._num_searched = len(body) + len(mark)
        return True

    def _finish_call(self, deltas: list[Delta]) -> None:
        """End a call that no mark has ended."""
        if self._loose is not None:
            self._take_calls(self._loose[1], self._loose[0], deltas)
            return
        calls, end = self._read(self._held) if self._syntax.ends_itself else ((), 0)
        if calls:
            self._take_calls(calls, end, deltas)
        else:
            self._give_up(len(self._held) if self._first_end is None else self._first_end, deltas)

    def _take_calls(self, calls: Sequence[ToolCall], end: int, deltas: list[Delta]) -> None:
        deltas += [Delta(tool_call=call) for call in calls]
        self._held = self._held[self._behind(end) :]
        self._state, self._gap = _State.CONTENT, self._gap or self._space
        self._space = self._lead = ""
        self._is_after_mark = self._is_after_call = True

    def _behind(self, end: int) -> int:
        """Return where the text behind a call that ends at `end` begins: behind its closing mark, if it has one."""
        has_mark = self._held.startswith(self._syntax.closing, end)
        return end + len(self._syntax.closing) if has_mark else end

    def _give_up(self, at: int, deltas: list[Delta]) -> None:
        """Make content of a call that cannot be read, up to the first mark that may have ended it."""
        end = at if self._first_end is None else self._first_end
        end = self._named_end if self._is_named else self._behind(end)
        body, self._held, self._state = self._held[:end], self._held[end:], _State.CONTENT
        self._emit_content(self._opened + body, deltas)

    def _emit_content(self, text: str, deltas: list[Delta]) -> None:
        """Emit text; hold back trailing white space, and drop white space around marks, but between two texts."""
        if self._lead:
            if not text.strip():
                self._lead += text
                return
            text, self._lead = self._lead + text, ""
        text = self._space + text
        if self._is_after_mark:
            words = text.lstrip()
            space = (text[: len(text) - len(words)] or self._gap) if self._has_shown else ""
            text = space + words if words else text
        shown = text.rstrip()
        self._space = text[len(shown) :]
        if shown:
            deltas.append(Delta(content=shown))
            self._has_shown, self._is_after_mark, self._is_after_call, self._gap = True, False, False, ""

    def _emit_rest(self, text: str, deltas: list[Delta]) -> None:
        """Emit the last text of the answer; a leading mark that no call followed is content."""
        text, self._lead = self._lead + text, ""
        self._emit_content(text, deltas)
        if self._space and self._has_shown and not self._is_after_mark:
            deltas.append(Delta(content=self._space))
