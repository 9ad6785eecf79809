"""Divides the text of a call into its arguments, whose values stand as plain text between tags.

Values are not escaped, so a tag may be text of a value. `strict_pairs` reads what has all of its tags, and takes a tag
for text where the others then are whole: in a value, a tag that opens an argument counts with the one that closes it.
`loose_pairs` reads what lacks closing tags, if no other tag is in doubt. Invariant: neither makes one value of two.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import islice

MAX_ENDS = 64  # tags that may end a function or a call and are looked at
Pairs = list[tuple[str, str]]


@dataclass(frozen=True, slots=True)
class Tags:
    """The tags of one argument. opening: matches the name as its group; closing: the text behind the value."""

    opening: re.Pattern[str]
    closing: str
    mark: re.Pattern[str]  # either of them, with the name as its group
    follows: re.Pattern[str]  # what may follow the closing tag


def tags(opening: str, closing: str) -> Tags:
    return Tags(
        re.compile(rf"\s*{opening}"),
        closing,
        re.compile(rf"{opening}|{re.escape(closing)}"),
        re.compile(rf"\s*(?:{opening}|\Z)"),
    )


def strict_pairs(text: str, known: Tags) -> Pairs | None:
    """Return the names and values of all arguments; None if a tag is missing."""
    pairs: Pairs = []
    at, end = 0, len(text.rstrip())
    while at < end:
        opening = known.opening.match(text, at)
        if opening is None:
            return None
        value_end = _closing(text, opening.end(), known)
        if value_end is None:
            return None
        pairs.append((opening[1].strip(), text[opening.end() : value_end]))
        at = value_end + len(known.closing)
    return pairs


def loose_pairs(text: str, known: Tags) -> Pairs | None:
    """Return the names and values if closing tags are missing, but nothing else is in doubt; otherwise None."""
    pairs: Pairs = []
    at, end = 0, len(text.rstrip())
    while at < end:
        opening = known.opening.match(text, at)
        if opening is None:
            return None
        found = known.mark.search(text, opening.end())
        value_end = found.start() if found else end
        pairs.append((opening[1].strip(), text[opening.end() : value_end].rstrip("\n")))
        at = value_end + len(known.closing) if found and found[0] == known.closing else value_end
    names = [name for name, _ in pairs]
    return pairs if len(set(names)) == len(names) else None


def functions(
    text: str, head: re.Pattern[str], tail: re.Pattern[str], known: Tags, *, is_strict: bool
) -> Sequence[tuple[str, Pairs]] | None:
    """Return the functions of a text, each with its arguments, between a head and a tail; None if it has other text."""
    read = strict_pairs if is_strict else loose_pairs
    found: list[tuple[str, Pairs]] = []
    at, end = 0, len(text.rstrip())
    while at < end:
        opening = head.match(text, at)
        if opening is None:
            return None
        for closing in islice(tail.finditer(text, opening.end()), MAX_ENDS):
            pairs = read(text[opening.end() : closing.start()], known)
            if pairs is not None:
                break
        else:
            return None
        found.append((opening[1].strip(), pairs))
        at = closing.end()
    return found


def _closing(text: str, begin: int, known: Tags) -> int | None:
    """Return where the value that begins at `begin` ends; None if its closing tag is missing.

    Where values stand on lines of their own, so do tags, and a tag within a line is text.
    """
    is_on_lines, depth = text.startswith("\n", begin), 0
    for mark in known.mark.finditer(text, begin):
        begins_line = text[mark.start() - 1] == "\n"
        if mark[0] != known.closing:
            depth += not is_on_lines or (begins_line and text.startswith("\n", mark.end()))
        elif depth:
            depth -= begins_line or not is_on_lines
        elif known.follows.match(text, mark.end()):
            return mark.start()
    return None
