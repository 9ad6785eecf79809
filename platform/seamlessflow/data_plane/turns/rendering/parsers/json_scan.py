"""Follows JSON objects that grow, so that a mark inside one of its strings is not taken for the end of a call.

It takes the text of a call as it grows; what stands before and between objects is passed over. It reads no character
twice, and gives up early on what no JSON has. It is no full parser: who asks reads the whole objects afterwards.
"""

import re
from enum import Enum, auto

_OUTSIDE = re.compile(r"[\s,:0-9eE+.\-truefalsn]*")  # numbers, words and what separates values
_IN_STRING = re.compile(r'(?:[^"\\]+|\\["\\/bfnrtu])*')
_SPACE = re.compile(r"\s*")
_NEXT = ",:]}"  # what may follow a string


class _State(Enum):
    BEFORE = auto()
    OUTSIDE = auto()
    STRING = auto()
    BEHIND_STRING = auto()
    BROKEN = auto()


class JsonScan:
    """BEFORE → OUTSIDE → STRING → BEHIND_STRING → OUTSIDE → BEFORE (the next object); or BROKEN."""

    def __init__(self) -> None:
        self._state = _State.BEFORE
        self._at = 0
        self._depth = 0
        self._end: int | None = None  # of the first object

    def is_inside(self, body: str) -> bool:
        """Return whether a string is open at the end of `body`, which begins with every earlier one."""
        self._read(body)
        return self._state is _State.STRING

    def end(self, body: str) -> int | None:
        """Return where the first object has ended; None if it has not."""
        self._read(body)
        return self._end

    def _read(self, body: str) -> None:
        while self._at < len(body) and self._step(body):
            pass

    def _step(self, body: str) -> bool:
        """Read on, up to the next change of state. Returns False if there is nothing more to read."""
        match self._state:
            case _State.BEFORE:
                found = body.find("{", self._at)
                self._at = found if found >= 0 else len(body)
                self._state = _State.OUTSIDE if found >= 0 else _State.BEFORE
            case _State.OUTSIDE:
                self._skip(_OUTSIDE, body)
                self._outside(body[self._at : self._at + 1])
            case _State.STRING:
                self._skip(_IN_STRING, body)
                return self._in_string(body[self._at : self._at + 2])
            case _State.BEHIND_STRING:
                self._skip(_SPACE, body)
                if self._at < len(body):
                    self._state = _State.OUTSIDE if body[self._at] in _NEXT else _State.BROKEN
            case _:
                return False
        return True

    def _skip(self, pattern: re.Pattern[str], body: str) -> None:
        found = pattern.match(body, self._at)
        self._at = found.end() if found else self._at

    def _outside(self, char: str) -> None:
        self._at += len(char)
        match char:
            case '"':
                self._state = _State.STRING
            case "{" | "[":
                self._depth += 1
            case "}" | "]":
                self._depth -= 1
                if not self._depth:
                    self._state, self._end = _State.BEFORE, self._at if self._end is None else self._end
            case "":
                pass
            case _:
                self._state = _State.BROKEN

    def _in_string(self, chars: str) -> bool:
        if not chars or chars == "\\":
            return False  # the text ends here, perhaps within an escape
        self._state = _State.BEHIND_STRING if chars[0] == '"' else _State.BROKEN
        self._at += 1
        return True
