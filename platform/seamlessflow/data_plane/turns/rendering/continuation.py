"""Finds what a rendering adds after an answer whose tokens are already in the tree.

It takes two renderings of the template: of all messages, and of those up to the answer. Invariant: the result is what
the template itself writes after the answer, so the sampled tokens stay and the new text follows them. Families differ
in how a past answer ends, and in whether an answer without reasoning shows an empty reasoning block.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from seamlessflow.data_plane.turns.rendering.parsers.families import Family


@dataclass(frozen=True, slots=True)
class TailKind:
    """The facts on which the text that a turn adds after an answer may depend. arguments: the template's, as JSON."""

    has_tools: bool
    num_calls: int  # of the answer, whose results follow it; 2 stands for several
    has_question: bool  # a user's message follows
    has_reasoning: bool  # some message carries reasoning
    arguments: bytes


def text_added(
    full: str,
    known: str,
    *,
    family: Family,
    end_texts: Sequence[str],
    sampled_end: str,
    special_texts: Sequence[str] = (),
) -> str | None:
    """Return the part of `full` after the tokens of a path that ends in an answer; None if `full` does not continue it.

    known: the rendering up to the answer. end_texts: the marks that end turns. special_texts: all special tokens, with
    one of which the template may end an answer although it ends no turn. sampled_end: the mark that the answer
    ended with; "" if it was cut short, and then the mark is new too. Text after the mark (usually a line break) was
    never sampled, so it is new.
    """
    ending = _ending(known, end_texts)
    if ending is None:
        return _added_after_open_end(full, known, family, end_texts, sampled_end)
    added = _added_after(full, known, ending, family, sampled_end)
    if added is not None:
        return added
    # Some templates end a finished rendering, not an answer, with a mark of its own: `full` lacks that one.
    shorter = known[: ending.at]
    inner = _special_ending(shorter, (*end_texts, *special_texts))
    return None if inner is None else _added_after(full, shorter, inner, family, sampled_end)


class _Ending(NamedTuple):
    """The last mark of a rendering, after which it has only white space."""

    at: int
    mark: str
    after: str


def _ending(known: str, end_texts: Sequence[str]) -> _Ending | None:
    at, mark = max((known.rfind(end), end) for end in end_texts)
    after = known[at + len(mark) :]
    return None if at < 0 or after.strip() else _Ending(at, mark, after)


def _special_ending(known: str, marks: Sequence[str]) -> _Ending | None:
    stripped = known.rstrip()
    mark = max(filter(stripped.endswith, marks), key=len, default=None)
    if mark is None:
        return None
    return _Ending(len(stripped) - len(mark), mark, known[len(stripped) :])


def _added_after(full: str, known: str, ending: _Ending, family: Family, sampled_end: str) -> str | None:
    """Return what follows an answer that the template ends with a mark; None if `full` does not go on like that."""
    begin = _position_after(full, known[: ending.at], family)
    for written in (ending.mark, family.past_end(ending.mark)):
        if begin is not None and full.startswith(written + ending.after, begin):
            return full[begin + len(written) if sampled_end else begin :]
    return None


def _added_after_open_end(
    full: str, known: str, family: Family, end_texts: Sequence[str], sampled_end: str
) -> str | None:
    """Return what follows an answer that the template leaves open: it writes the mark once something follows.

    In some families the next turn opens with the mark that the model samples. If it opens otherwise, the sampled mark
    stays and that turn's own mark follows.
    """
    begin = _position_after(full, known, family)
    if begin is None or not (family.ends_with_opener or full.startswith(tuple(end_texts), begin)):
        return None
    return full[begin:].removeprefix(sampled_end)


def _position_after(full: str, known: str, family: Family) -> int | None:
    """Return where `full` goes on after `known`; None if it does not. Empty reasoning blocks count as nothing.

    Some templates write an empty block only into the last answer, or only into answers after the last question.
    """
    if full.startswith(known):
        return len(known)
    if not family.think:
        return None
    empty = re.compile(rf"{re.escape(family.think)}\s*{re.escape(family.end_think)}\s*")
    left = empty.sub("", known)
    at = num_same = 0
    for block in empty.finditer(full):
        piece = full[at : block.start()]
        if num_same + len(piece) >= len(left):
            break
        if not left.startswith(piece, num_same):
            return None
        at, num_same = block.end(), num_same + len(piece)
    rest = left[num_same:]
    return at + len(rest) if full.startswith(rest, at) else None
