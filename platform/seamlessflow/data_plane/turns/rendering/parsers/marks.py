"""Searches growing text for marks: where the first one begins, and how much text may be the beginning of one."""

from collections.abc import Sequence


def first_mark(text: str, marks: Sequence[str], start: int = 0) -> tuple[int, str]:
    """Return the position of the first mark and the mark; (-1, "") if there is none."""
    first, found = -1, ""
    for mark in marks:
        at = text.find(mark, start)
        if at >= 0 and (first < 0 or at < first):
            first, found = at, mark
    return first, found


def num_held(text: str, marks: Sequence[str]) -> int:
    """Return the length of the longest suffix of `text` that is a proper prefix of a mark."""
    longest = 0
    for mark in marks:
        at = text.find(mark[0], max(0, len(text) - len(mark) + 1))
        while at >= 0 and not mark.startswith(text[at:]):
            at = text.find(mark[0], at + 1)
        if at >= 0:
            longest = max(longest, len(text) - at)
    return longest
