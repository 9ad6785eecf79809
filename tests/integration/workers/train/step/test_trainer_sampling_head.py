"""A head that returns logprobs in place of many logits: only inside models that leave its output alone."""

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn

from seamlessflow_workers.train.step import sampling_head
from seamlessflow_workers.train.step.sampling_head import SampledTokens, SamplingHead

NUM_TOKENS, WIDTH, VOCABULARY = 6, 5, 23
CHANGES: dict[str, Callable[[Tensor], Tensor]] = {
    "none": lambda logits: logits,
    "another number format": lambda logits: logits.to(torch.float64),
    "hooks of DeepSpeed": lambda logits: logits.view_as(logits),
    "scale": lambda logits: logits * 0.5,
    "scale in place": lambda logits: logits.mul_(0.5),
    "cap": lambda logits: 3 * torch.tanh(logits / 3),
}
KEPT = ("none", "another number format", "hooks of DeepSpeed")


@pytest.mark.parametrize("name", CHANGES)
def test_figures_are_those_of_the_logits_that_the_model_returns(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    torch.manual_seed(0)
    hidden = torch.randn(1, NUM_TOKENS, WIDTH, dtype=torch.float64)
    positions = torch.arange(NUM_TOKENS)
    tokens = SampledTokens(positions * 0, positions, positions + 3, 0.8, None)
    passes: list[int] = []
    figures: dict[int, tuple[Tensor, Tensor]] = {}
    gradients: dict[int, Tensor] = {}
    for kept in (2**28, 1):
        monkeypatch.setattr(sampling_head, "KEPT_LOGITS", kept)
        torch.manual_seed(1)
        linear = nn.Linear(WIDTH, VOCABULARY, bias=False, dtype=torch.float64)
        head = SamplingHead(linear, has_entropy_gradient=True)

        def run_model(linear: nn.Linear = linear, kept: int = kept) -> Tensor:
            passes.append(kept)
            return CHANGES[name](linear(hidden))

        for _ in range(2):
            figures[kept] = head.figures(run_model, tokens)
        (figures[kept][0] + 0.1 * figures[kept][1]).sum().backward()
        assert linear.weight.grad is not None
        gradients[kept] = linear.weight.grad

    torch.testing.assert_close(figures[1], figures[2**28], atol=1e-12, rtol=0)
    torch.testing.assert_close(gradients[1], gradients[2**28], atol=1e-12, rtol=0)
    assert head._can_replace == (name in KEPT)
    assert passes.count(1) == passes.count(2**28) == 3, "a model is tried once"
