"""Searches growing text for marks: where the first one begins, and how much text may be the beginning of one."""

from collections.abc import Sequence


def first_mark(text: str, marks: Sequence[str], start: int = 0) -> tuple[int, str]:
    """Return the position of the first mark and the mark; (-1, "") if there is none."""
    found = ((text.find(mark, start), mark) for mark in marks)
    return min(((at, mark) for at, mark in found if at >= 0), default=(-1, ""))


def num_held(text: str, marks: Sequence[str]) -> int:
    """Return the length of the longest suffix of `text` that is a proper prefix of a mark."""
    return max((_overlap(text, mark) for mark in marks), default=0)


def _overlap(text: str, mark: str) -> int:
    for length in range(min(len(text), len(mark) - 1), 0, -1):
        if text.endswith(mark[:length]):
            return length
    return 0
