"""Turns what a client demands of an answer into a guide for one model, and checks that it can be followed.

It runs in the helper processes, which the gateway limits: schemas come from clients, and large ones take a while.
"""

import functools
from pathlib import Path
from typing import TYPE_CHECKING

from seamlessflow.core.guidance.answer_grammar import GuidedModel, ToolDemand, answer_guide
from seamlessflow.core.guidance.guide import Guide, InvalidGuideError, guide_make
from seamlessflow.core.guidance.masks import MatcherFailedError
from seamlessflow.data_plane.turns.rendering.model_text import ModelText
from seamlessflow.data_plane.turns.rendering.template_traits import writes_reasoning

if TYPE_CHECKING:
    from seamlessflow.core.guidance.matching import Vocabulary

NUM_VOCABULARIES_KEPT = 8
NUM_GUIDES_KEPT = 256


def demanded_guide(text: ModelText, folder: str, demand: ToolDemand, *, prompt: str) -> Guide:
    """Return the guide of the answer to a rendered prompt. Raises InvalidGuideError."""
    think, end_think = text.family.think, text.family.end_think
    shown = prompt.rstrip()
    is_open, is_closed = (bool(mark) and shown.endswith(mark) for mark in (think, end_think))
    model = GuidedModel(
        family=text.family.name,
        think=(think, end_think),
        has_token=lambda mark: text.tokenizer.token_to_id(mark) is not None,
        special_id=lambda mark: _vocabulary(folder).special_id(mark),
        may_reason=not is_closed and writes_reasoning(text),
    )
    wanted = answer_guide(demand, model, starts_in_reasoning=is_open)
    guide = guide_make(wanted, end_token_ids=text.end_ids)
    _check(folder, guide)
    return guide


@functools.lru_cache(maxsize=NUM_GUIDES_KEPT)
def _check(folder: str, guide: Guide) -> None:
    """Compile the guide and its first mask, as engines will."""
    try:
        _vocabulary(folder).matcher(guide).mask()
    except MatcherFailedError as error:
        raise InvalidGuideError(f"{guide.kind} cannot be followed: {error}") from error


@functools.lru_cache(maxsize=NUM_VOCABULARIES_KEPT)
def _vocabulary(folder: str) -> "Vocabulary":
    from seamlessflow.core.guidance.matching import (  # a request without a guide needs none
        Vocabulary,
        num_tokens_of,
    )

    tokenizer = (Path(folder) / "tokenizer.json").read_text(encoding="utf-8")
    return Vocabulary(tokenizer, num_tokens=num_tokens_of(tokenizer))
