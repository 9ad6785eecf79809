"""The output head of a policy, which computes only where tokens were sampled, and never many logits at once.

It takes over the forward pass of a model's head, inside the model, so that hooks around the head (ZeRO-3 gathers its
weight there) work as usual. Up to KEPT_LOGITS logits, it returns them for the chosen positions. Beyond, it returns the
logprob and the entropy of each of these tokens instead, computed in chunks. Models that change what their head
returns (by a scale or a cap) always get logits: this is tried before the first pass.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from seamlessflow_workers.train.step.sampled import (
    Masks,
    head_logprobs_and_entropies,
    logprobs_and_entropies,
)

KEPT_LOGITS = 2**28  # 512 MiB of bfloat16, and as much for their gradient


@dataclass(frozen=True, slots=True)
class SampledTokens:
    """N tokens, each predicted at (rows[i], columns[i]), and how they were sampled.

    With `deal`, which all ranks of a sequence group call together, the positions are those of n other tokens; it turns
    what they are predicted from, [n, C], into [N, C].
    """

    rows: Tensor  # [N] int64
    columns: Tensor  # [N] int64
    targets: Tensor  # [N] int64
    temperature: float
    masks: Masks | None
    deal: Callable[[Tensor], Tensor] | None = None

    @property
    def positions(self) -> tuple[Tensor, Tensor]:
        return self.rows, self.columns


class SamplingHead:
    """Replaces the forward pass of one head. Outside its methods the head computes as before."""

    def __init__(self, head: nn.Module, *, has_entropy_gradient: bool) -> None:
        self._head: Any = head
        self._plain = head.forward
        head.forward = self._forward
        self._has_entropy_gradient = has_entropy_gradient
        self._positions: tuple[Tensor, Tensor] | None = None  # of this pass
        self._wanted: SampledTokens | None = None
        self._returned: list[_Returned] = []  # by the head in this pass, instead of logits
        self._can_replace: bool | None = None  # None: not tried yet

    def figures(self, run_model: Callable[[], Tensor], tokens: SampledTokens) -> tuple[Tensor, Tensor]:
        """Return (logprobs [N], entropies [N]); `run_model` returns the model's output, which it makes of its
        head's."""
        if self._can_replace is None:
            self._can_replace = self._is_left_alone(run_model, tokens)
        output = self._run(run_model, tokens.positions, tokens)
        if not self._returned:
            return logprobs_and_entropies(
                output,
                tokens.targets,
                tokens.temperature,
                has_entropy_gradient=self._has_entropy_gradient,
                masks=tokens.masks,
            )
        logprobs, entropies = output.unbind(-1)
        return logprobs, entropies if self._has_entropy_gradient else entropies.detach()

    def _is_left_alone(self, run_model: Callable[[], Tensor], tokens: SampledTokens) -> bool:
        """Run the model once, and return whether it returns what its head returns.

        Every rank does so in its first pass, however few tokens it has, because ranks gather weights together.
        """
        if type(self._head) is not nn.Linear:
            return False
        devices = [tokens.targets.device] if tokens.targets.is_cuda else []
        with torch.no_grad(), torch.random.fork_rng(devices):
            output = self._run(run_model, tokens.positions, tokens)
        return self._returned[0].is_still(output)

    def logits(self, run_model: Callable[[], Tensor], rows: Tensor, columns: Tensor) -> Tensor:
        """Return the head's output at these positions, [N, its width], as the model returns it."""
        return self._run(run_model, (rows, columns), None)

    def _run(
        self, run_model: Callable[[], Tensor], positions: tuple[Tensor, Tensor], tokens: SampledTokens | None
    ) -> Tensor:
        self._positions, self._wanted, self._returned = positions, tokens, []
        try:
            return run_model()
        finally:
            self._positions = self._wanted = None

    def _forward(self, hidden: Tensor) -> Tensor:
        tokens = self._wanted
        chosen = hidden if self._positions is None else hidden[self._positions]
        if tokens is not None and tokens.deal is not None:
            chosen = tokens.deal(chosen)
        if tokens is None or self._gets_logits(len(chosen)):
            logits: Tensor = self._plain(chosen)
            return logits
        found = head_logprobs_and_entropies(
            chosen,
            self._head.weight,
            self._head.bias,
            tokens.targets,
            tokens.temperature,
            has_entropy_gradient=self._has_entropy_gradient,
            masks=tokens.masks,
        )
        figures = torch.stack(found, -1)
        self._returned.append(_Returned(figures.detach(), figures._version))
        return figures

    def _gets_logits(self, num_tokens: int) -> bool:
        if self._can_replace is None:
            return False
        return not self._can_replace or num_tokens * int(self._head.weight.shape[0]) <= KEPT_LOGITS


@dataclass(frozen=True, slots=True)
class _Returned:
    """A head's output instead of logits."""

    figures: Tensor
    version: int  # counts changes in place, also through other tensors of this memory

    def is_still(self, output: Tensor) -> bool:
        """Return whether `output` is the same memory, unchanged; hooks may have put it into another tensor."""
        is_same = output.untyped_storage()._cdata == self.figures.untyped_storage()._cdata
        return is_same and self.figures._version == self.version
