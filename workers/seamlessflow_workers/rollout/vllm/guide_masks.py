"""Applies the masks of guided requests inside vLLM's workers, as one of vLLM's custom logits processors.

A guide comes with a request's `extra_args` (`guide_arguments`). The processor follows the request's own tokens and
computes masks with the code that embedded engines and trainers use, so vLLM needs no tokenizer. If a guide fails in the
middle of an answer, the request goes on freely here, and the engine in front, which follows the same tokens, ends it.
"""

import logging
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from vllm import SamplingParams
from vllm.config import VllmConfig
from vllm.v1.sample.logits_processor import BatchUpdate, LogitsProcessor, MoveDirectionality

from seamlessflow.core.guidance.guide import Guide, GuideKind, InvalidGuideError
from seamlessflow.core.guidance.masks import (
    MatcherFailedError,
    PackedMask,
    TokenNotAllowedError,
    unpacked_mask,
)

if TYPE_CHECKING:
    from seamlessflow.core.guidance.matching import Matcher, Vocabulary

logger = logging.getLogger(__name__)

GUIDE = "seamlessflow_guide"


def guide_arguments(guide: Guide, *, num_answered: int) -> dict[str, Any]:
    """Return the `extra_args` of a request whose last `num_answered` prompt tokens belong to the answer."""
    return {
        GUIDE: {
            "kind": guide.kind.value,
            "text": guide.text,
            "end_token_ids": list(guide.end_token_ids),
            "num_answered": num_answered,
        }
    }


@dataclass(slots=True)
class _Followed:
    matcher: "Matcher"
    output_ids: Sequence[int]  # vLLM appends to it
    num_taken: int = 0

    def mask(self) -> PackedMask | None:
        """Return the mask of the next token; None once the answer has ended. Raises the matcher's errors."""
        self.matcher.replay(self.output_ids[self.num_taken :])
        self.num_taken = len(self.output_ids)
        return None if self.matcher.is_ended else self.matcher.mask()


class GuideMasks(LogitsProcessor):
    """One per worker. Requests are known by their row in the batch."""

    def __init__(self, vllm_config: VllmConfig, device: torch.device, is_pin_memory: bool) -> None:
        self._folder = Path(vllm_config.model_config.model)
        self._num_tokens: int = vllm_config.model_config.get_vocab_size()
        self._device = device
        self._followed: dict[int, _Followed] = {}
        self._vocabulary: Vocabulary | None = None

    def is_argmax_invariant(self) -> bool:
        return False

    def update_state(self, batch_update: BatchUpdate | None) -> None:
        if batch_update is None:
            return
        for row in batch_update.removed:
            self._followed.pop(row, None)
        for row, params, prompt_ids, output_ids in batch_update.added:
            self._followed.pop(row, None)
            self._add(row, params, prompt_ids or [], output_ids)
        for first, second, direction in batch_update.moved:
            moving, other = self._followed.pop(first, None), self._followed.pop(second, None)
            if moving is not None:
                self._followed[second] = moving
            if other is not None and direction is MoveDirectionality.SWAP:
                self._followed[first] = other

    def apply(self, logits: torch.Tensor) -> torch.Tensor:
        for row, followed in list(self._followed.items()):
            try:
                mask = followed.mask()
            except (TokenNotAllowedError, MatcherFailedError) as error:
                logger.warning("a guided answer goes on freely: %s", error)
                del self._followed[row]
                continue
            if mask is not None:
                is_allowed = torch.from_numpy(unpacked_mask(mask, num_tokens=logits.shape[1]))
                logits[row].masked_fill_(~is_allowed.to(logits.device), -torch.inf)
        return logits

    def _add(self, row: int, params: SamplingParams, prompt_ids: list[int], output_ids: list[int]) -> None:
        wanted = (params.extra_args or {}).get(GUIDE)
        if wanted is None:
            return
        guide = Guide(GuideKind(wanted["kind"]), wanted["text"], tuple(wanted["end_token_ids"]))
        try:
            matcher = self._read_vocabulary().matcher(guide)
            matcher.replay(prompt_ids[len(prompt_ids) - wanted["num_answered"] :])
        except (
            InvalidGuideError,
            TokenNotAllowedError,
        ) as error:  # the engine in front accepted the same guide
            logger.warning("a guided answer goes on freely: %s", error)
            return
        self._followed[row] = _Followed(matcher, output_ids)

    def _read_vocabulary(self) -> "Vocabulary":
        from seamlessflow.core.guidance.matching import Vocabulary  # free requests do without the library

        if self._vocabulary is None:
            tokenizer = (self._folder / "tokenizer.json").read_text()
            self._vocabulary = Vocabulary(tokenizer, num_tokens=self._num_tokens)
        return self._vocabulary
