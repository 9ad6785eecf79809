"""Logprobs and entropies in chunks: values and gradients of the plain computation, and no wide copy of the logits."""

import numpy as np
import pytest
import torch
from torch import Tensor

from seamlessflow_workers.train.step import sampled
from seamlessflow_workers.train.step.sampled import (
    Masks,
    head_logprobs_and_entropies,
    logprobs_and_entropies,
)

NUM_ROWS, NUM_TOKENS, WIDTH = 37, 19, 11


def plain(logits: Tensor, targets: Tensor, temperature: float) -> tuple[Tensor, Tensor]:
    log_probabilities = torch.log_softmax(logits / temperature, dim=-1)
    entropies = torch.distributions.Categorical(logits=logits / temperature).entropy()
    return log_probabilities.gather(-1, targets[:, None])[:, 0], entropies


def masked(logits: Tensor, hidden: Tensor, targets: Tensor, temperature: float) -> tuple[Tensor, Tensor]:
    """Row by row, over the tokens that are not hidden."""
    logprobs, entropies = [], []
    for row, is_hidden, target in zip(logits, hidden, targets, strict=True):
        possible = (~is_hidden).nonzero()[:, 0]
        own = torch.log_softmax(row[possible] / temperature, dim=-1)
        logprobs.append(own[possible == target][0])
        entropies.append(-(own.exp() * own).sum())
    return torch.stack(logprobs), torch.stack(entropies)


@pytest.mark.parametrize("temperature", [0.3, 1.0, 1.7])
@pytest.mark.parametrize("chunk_elements", [1, 5 * NUM_TOKENS, 2**26])
def test_values_and_gradients_are_those_of_the_plain_computation(
    temperature: float, chunk_elements: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sampled, "CHUNK_ELEMENTS", chunk_elements)
    torch.manual_seed(3)
    logits = (5 * torch.randn(NUM_ROWS, NUM_TOKENS, dtype=torch.float64)).requires_grad_()
    targets = torch.randint(NUM_TOKENS, (NUM_ROWS,))
    of_logprobs, of_entropies = torch.randn(2, NUM_ROWS, dtype=torch.float64)
    for weight in (0.0, 1.0):
        found = logprobs_and_entropies(logits, targets, temperature, has_entropy_gradient=bool(weight))
        expected = plain(logits, targets, temperature)
        torch.testing.assert_close(found, expected, atol=1e-12, rtol=0)
        assert found[1].requires_grad == bool(weight)
        losses = [(of_logprobs * a + weight * of_entropies * b).sum() for a, b in (found, expected)]
        gradients = [torch.autograd.grad(loss, logits)[0] for loss in losses]
        torch.testing.assert_close(*gradients, atol=1e-12, rtol=0)


@pytest.mark.parametrize("chunk_elements", [1, 5 * NUM_TOKENS, 2**26])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_masked_rows_have_the_masked_distribution_and_its_gradient(
    chunk_elements: int, dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Against float64; weights of entropies far above one would turn an infinity into NaN."""
    monkeypatch.setattr(sampled, "CHUNK_ELEMENTS", chunk_elements)
    torch.manual_seed(5)
    logits = 5 * torch.randn(NUM_ROWS, NUM_TOKENS, dtype=torch.float64)
    targets = torch.randint(NUM_TOKENS, (NUM_ROWS,))
    allowed = torch.rand(4, NUM_TOKENS) < 0.3
    rows = torch.randint(-1, 4, (NUM_ROWS,))
    for row in range(4):
        targets[rows == row] = int(allowed[row].nonzero()[-1])
    of_logprobs, of_entropies = 1e3 * torch.randn(2, NUM_ROWS, dtype=torch.float64)

    plain_logits, own = logits.clone().requires_grad_(), logits.to(dtype).requires_grad_()
    hidden = (~allowed)[rows] & (rows >= 0)[:, None]
    expected = masked(plain_logits, hidden, targets, 0.7)
    table = torch.from_numpy(np.packbits(allowed.numpy(), axis=1, bitorder="little"))
    found = logprobs_and_entropies(own, targets, 0.7, has_entropy_gradient=True, masks=Masks(rows, table))
    exact = dtype == torch.float64
    for a, b in zip(found, expected, strict=True):
        torch.testing.assert_close(a.double(), b, atol=1e-12 if exact else 1e-4, rtol=0)
    gradients = [
        torch.autograd.grad((of_logprobs * a.double() + of_entropies * b.double()).sum(), given)[0].double()
        for (a, b), given in ((found, own), (expected, plain_logits))
    ]
    assert (gradients[0][hidden] == 0).all()
    torch.testing.assert_close(*gradients, atol=1e-9 if exact else 2e-2, rtol=0)


def test_the_gradient_is_the_derivative() -> None:
    torch.manual_seed(4)
    logits = torch.randn(5, 7, dtype=torch.float64, requires_grad=True)
    targets = torch.randint(7, (5,))
    assert torch.autograd.gradcheck(
        lambda x: logprobs_and_entropies(x, targets, 0.8, has_entropy_gradient=True), (logits,)
    )


def test_tokens_that_cannot_be_sampled_leave_numbers() -> None:
    logits = torch.tensor([[0.5, -torch.inf, 1.5], [-torch.inf, 2.0, -torch.inf]], requires_grad=True)
    logprobs, entropies = logprobs_and_entropies(logits, torch.tensor([2, 1]), 1.0, has_entropy_gradient=True)
    (logprobs.sum() + entropies.sum()).backward()
    assert logits.grad is not None
    assert logits.grad.isfinite().all()
    assert entropies[1] == 0
    torch.testing.assert_close(logprobs[0], torch.tensor([0.5, 1.5]).log_softmax(0)[1])


def test_bfloat16_logits_are_widened_chunk_by_chunk(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sampled, "CHUNK_ELEMENTS", 4 * NUM_TOKENS)
    logits = torch.randn(NUM_ROWS, NUM_TOKENS).bfloat16().requires_grad_()
    targets = torch.randint(NUM_TOKENS, (NUM_ROWS,))
    with WidestTensor() as widest:
        logprobs, entropies = logprobs_and_entropies(logits, targets, 1.0, has_entropy_gradient=True)
        (logprobs + entropies).sum().backward()
    assert widest.num_elements == 4 * NUM_TOKENS
    assert logprobs.dtype == torch.float32
    torch.testing.assert_close(logprobs, plain(logits.float(), targets, 1.0)[0])
    assert logits.grad is not None
    assert logits.grad.dtype == torch.bfloat16


class WidestTensor(torch.utils._python_dispatch.TorchDispatchMode):
    """Notes the largest float32 tensor that any operation makes, and of those with a logit per token the largest."""

    num_elements = 0
    num_logits = 0

    def __torch_dispatch__(self, function, types, arguments=(), options=None):  # type: ignore[no-untyped-def]
        made = function(*arguments, **(options or {}))
        if isinstance(made, Tensor) and made.dtype == torch.float32:
            self.num_elements = max(self.num_elements, made.numel())
        if isinstance(made, Tensor) and made.shape[1:] == (NUM_TOKENS,) and len(made) != WIDTH:
            self.num_logits = max(self.num_logits, made.numel())
        return made


@pytest.mark.parametrize("has_bias", [False, True])
@pytest.mark.parametrize("chunk_elements", [1, 5 * NUM_TOKENS, 2**26])
def test_a_head_in_chunks_has_the_values_and_gradients_of_the_plain_one(
    has_bias: bool, chunk_elements: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In float64, with and without masks and a gradient of the entropies."""
    monkeypatch.setattr(sampled, "CHUNK_ELEMENTS", chunk_elements)
    torch.manual_seed(6)
    hidden = torch.randn(NUM_ROWS, WIDTH, dtype=torch.float64, requires_grad=True)
    weight = torch.randn(NUM_TOKENS, WIDTH, dtype=torch.float64, requires_grad=True)
    bias = torch.randn(NUM_TOKENS, dtype=torch.float64, requires_grad=True) if has_bias else None
    given = [hidden, weight, *([] if bias is None else [bias])]
    targets = torch.zeros(NUM_ROWS, dtype=torch.int64)
    masks = Masks(torch.arange(NUM_ROWS) % 3 - 1, torch.tensor([[255, 3, 1], [15, 0, 0]], dtype=torch.uint8))
    of_logprobs, of_entropies = torch.randn(2, NUM_ROWS, dtype=torch.float64)
    for options in ({"has_entropy_gradient": True}, {"has_entropy_gradient": False, "masks": masks}):
        found = head_logprobs_and_entropies(hidden, weight, bias, targets, 0.7, **options)
        logits = torch.nn.functional.linear(hidden, weight, bias)
        expected = logprobs_and_entropies(logits, targets, 0.7, **options)
        torch.testing.assert_close(found, expected, atol=1e-12, rtol=0)
        assert found[1].requires_grad == options["has_entropy_gradient"]
        losses = [(of_logprobs * a + of_entropies * b).sum() for a, b in (found, expected)]
        gradients = [torch.autograd.grad(loss, given) for loss in losses]
        torch.testing.assert_close(*gradients, atol=1e-10, rtol=0)


def test_a_head_in_chunks_never_has_all_logits_in_any_format(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sampled, "CHUNK_ELEMENTS", 4 * NUM_TOKENS)
    hidden = torch.randn(NUM_ROWS, WIDTH).bfloat16().requires_grad_()
    weight = torch.randn(NUM_TOKENS, WIDTH).bfloat16().requires_grad_()
    targets = torch.randint(NUM_TOKENS, (NUM_ROWS,))
    with WidestTensor() as widest:
        found = head_logprobs_and_entropies(hidden, weight, None, targets, 1.0, has_entropy_gradient=True)
        (found[0] + found[1]).sum().backward()
    assert widest.num_logits == 4 * NUM_TOKENS
    assert weight.grad is not None
    assert weight.grad.dtype == torch.bfloat16
