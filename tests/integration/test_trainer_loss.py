"""The tensor loss against its float64 oracle, and the statistics of a step."""

import numpy as np
import pytest
import torch
from torch import Tensor

from seamlessflow.core.algorithms.reference_loss import reference_loss
from seamlessflow.core.job_spec import AlgorithmSection
from seamlessflow_workers.train.loss import StepStatistics, TokenTargets, token_loss


def random_tokens(seed: int, num_tokens: int) -> dict[str, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    normal = torch.randn(4, num_tokens, generator=generator, dtype=torch.float64)
    behaviour = normal[0] - 2
    return {
        "logprobs": behaviour + 0.4 * normal[1],
        "behaviour": behaviour,
        "advantages": normal[2],
        "reference": behaviour + 0.4 * normal[3],
    }


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("kl_coef", [0.0, 0.2])
def test_value_and_gradient_equal_the_oracle_whatever_the_micro_batches(seed: int, kl_coef: float) -> None:
    tokens = random_tokens(seed, 257)
    algorithm = AlgorithmSection(kl_coef=kl_coef, clip_low=0.1, clip_high=0.3)
    oracle = reference_loss(
        logprobs=tokens["logprobs"].numpy(),
        behaviour_logprobs=tokens["behaviour"].numpy(),
        advantages=tokens["advantages"].numpy(),
        clip_low=0.1,
        clip_high=0.3,
        num_trained_tokens=300,
        reference_logprobs=tokens["reference"].numpy() if kl_coef else None,
        kl_coef=kl_coef,
    )
    logprobs = tokens["logprobs"].clone().requires_grad_()
    total = 0.0
    for ragged in torch.arange(257).split([1, 56, 150, 50]):
        targets = TokenTargets(
            behaviour_logprobs=tokens["behaviour"][ragged],
            advantages_positive=tokens["advantages"][ragged].clamp(min=0),
            advantages_negative=tokens["advantages"][ragged].clamp(max=0),
            loss_weights=torch.ones(len(ragged), dtype=torch.float64),
            is_current=torch.ones(len(ragged), dtype=torch.bool),
            reference_logprobs=tokens["reference"][ragged] if kl_coef else None,
        )
        loss = token_loss(logprobs[ragged], targets, algorithm, loss_weight=300)
        loss.backward()
        total += float(loss.detach())
    assert logprobs.grad is not None
    assert total == pytest.approx(oracle.loss, abs=1e-10)
    np.testing.assert_allclose(logprobs.grad.numpy(), oracle.gradient, atol=1e-10)


def test_statistics_are_means_over_tokens_whatever_the_micro_batches() -> None:
    ratios = torch.tensor([1.0, 2.0, 0.5, 1.0], dtype=torch.float64)
    advantages = torch.tensor([1.0, 1.0, -1.0, -1.0])
    is_current = torch.tensor([True, False, True, False])
    statistics = StepStatistics(AlgorithmSection())
    for part in (slice(0, 1), slice(1, 4)):
        statistics.add(
            loss=torch.tensor(0.25),
            logprobs=ratios[part].log() - 1,
            entropies=torch.full_like(ratios[part], 3.0),
            targets=TokenTargets(
                behaviour_logprobs=torch.full_like(ratios[part], -1.0),
                advantages_positive=advantages[part].clamp(min=0),
                advantages_negative=advantages[part].clamp(max=0),
                loss_weights=torch.ones_like(ratios[part]),
                is_current=is_current[part],
            ),
        )
    metrics = statistics.metrics()
    expected = {
        "train/loss": 0.5,
        "train/entropy": 3.0,
        "train/kl_behaviour": 0.0,
        "train/clip_fraction_low": 0.25,
        "train/clip_fraction_high": 0.25,
        "train/ratio_mean": 4.5 / 4,
        "train/ratio_max": 2.0,
        "train/ess": 4.5**2 / (4 * 6.25),
        "train/mismatch_mean": np.log(2) / 2,
        "train/mismatch_max": np.log(2),
    }
    assert metrics == pytest.approx(expected)


def test_statistics_without_a_token_are_absent_not_zero() -> None:
    assert StepStatistics(AlgorithmSection()).metrics() == {}
