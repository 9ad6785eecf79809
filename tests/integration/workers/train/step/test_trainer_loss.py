"""The tensor loss of every algorithm against the plain-float oracle, and the statistics of a step."""

import dataclasses
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from seamlessflow.core.algorithms.options import AlgorithmName
from seamlessflow.core.algorithms.presets import PRESETS
from seamlessflow.core.algorithms.section import AlgorithmSection
from seamlessflow_workers.train.step.loss import LossOutput, TokenTerms, policy_loss
from seamlessflow_workers.train.step.metrics import StepStatistics
from tests.fixtures.random_sequences import CONSTANT, RandomSequences, random_sequences
from tests.oracles.reference_loss import reference_loss

CURRENT = {"proximal": "current"}
VARIANTS: dict[str, dict[str, Any]] = {
    **{name.value: {"name": name.value} for name in AlgorithmName},
    "wide clip": {"name": "gspo", "clip_low": 0.05, "clip_high": 0.08},
    "sequence product": {"name": "rloo", "kl_coef": 0.0},
    "dual clip": {"name": "dapo", "dual_clip": 1.4},
    "k1": {"name": "grpo", "kl_coef": 0.3, "kl_estimator": "k1"},
    "k2": {"name": "dapo", "kl_coef": 0.3, "kl_estimator": "k2"},
    "k3": {"name": "dr_grpo", "kl_coef": 0.3, "kl_estimator": "k3"},
    "entropy": {"name": "dapo", "entropy_coef": 0.05, "kl_coef": 0.1},
    "decoupled": {"name": "grpo", "off_policy": CURRENT},
    "truncated": {
        "name": "dapo",
        "off_policy": {**CURRENT, "importance": "truncate", "importance_max": 1.2},
    },
    "truncated by sequence": {
        "name": "gspo",
        "off_policy": {
            **CURRENT,
            "importance": "truncate",
            "importance_level": "sequence",
            "importance_max": 1.5,
        },
    },
    "masked": {
        "name": "cispo",
        "off_policy": {**CURRENT, "importance": "mask", "importance_min": 0.8, "importance_max": 1.25},
    },
    "masked by sequence": {
        "name": "grpo",
        "kl_coef": 0.2,
        "off_policy": {
            **CURRENT,
            "importance": "mask",
            "importance_level": "sequence_mean",
            "importance_min": 0.97,
            "importance_max": 1.03,
        },
    },
    "reinforce": {"name": "rloo", "objective": "policy_gradient", "ratio": "token", "kl_coef": 0.0},
}

DECOUPLED = [name for name, options in VARIANTS.items() if "off_policy" in options]


def terms_of(
    batch: RandomSequences, algorithm: AlgorithmSection, samples: slice, *, is_first: bool = True
) -> tuple[TokenTerms, Any]:
    """The trained tokens of some samples as a micro-batch, and where they are."""
    spans = batch.spans()[samples]
    token_indices = np.concatenate(
        [np.arange(span.start, span.stop)[batch.is_trained[span]] for span in spans]
    )
    counts = [int(batch.is_trained[span].sum()) for span in spans]
    scales = batch.scales(algorithm)[token_indices]
    weighted = torch.from_numpy(scales * batch.advantages[token_indices])
    terms = TokenTerms(
        behaviour_logprobs=torch.from_numpy(batch.behaviour[token_indices]),
        advantages_positive=weighted.clamp(min=0),
        advantages_negative=weighted.clamp(max=0),
        loss_weights=torch.from_numpy(scales),
        sequences=torch.from_numpy(np.repeat(np.arange(len(spans)), counts)),
        num_sequences=len(spans),
        is_current=torch.ones(len(token_indices), dtype=torch.bool),
        reference_logprobs=torch.from_numpy(batch.reference[token_indices])
        if algorithm.needs_reference
        else None,
        start_logprobs=None if is_first else torch.from_numpy(batch.start[token_indices]),
    )
    return terms, token_indices


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize(
    "variant,is_first",
    [*((variant, True) for variant in VARIANTS), *((variant, False) for variant in DECOUPLED)],
)
def test_value_and_gradient_equal_the_oracle_whatever_the_micro_batches(
    variant: str, is_first: bool, seed: int
) -> None:
    algorithm = AlgorithmSection.model_validate(VARIANTS[variant])
    batch = random_sequences(seed)
    sequences = batch.sequences(is_first=is_first)
    oracle = reference_loss(sequences, algorithm, aggregation_constant=CONSTANT)
    logprobs = torch.from_numpy(batch.logprobs).requires_grad_()
    entropies = torch.from_numpy(batch.entropies).requires_grad_()
    total = 0.0
    for samples in (slice(0, 1), slice(1, 6), slice(6, 12)):
        terms, token_indices = terms_of(batch, algorithm, samples, is_first=is_first)
        loss = policy_loss(logprobs[token_indices], terms, algorithm, entropies=entropies[token_indices]).loss
        loss.backward()
        total += float(loss.detach())
    assert logprobs.grad is not None
    assert total == pytest.approx(oracle.loss, abs=1e-10)
    np.testing.assert_allclose(logprobs.grad.numpy(), np.concatenate(oracle.gradients), atol=1e-10)
    if algorithm.entropy_coef:
        assert entropies.grad is not None
        np.testing.assert_allclose(
            entropies.grad.numpy(), np.concatenate(oracle.entropy_gradients), atol=1e-10
        )
    assert np.abs(logprobs.grad.numpy()).max() > 1e-4  # there is something to compare


@pytest.mark.parametrize("variant", VARIANTS)
def test_what_sampler_and_trainer_disagree_about_most_leaves_loss_and_gradient_finite(variant: str) -> None:
    """Logprobs apart by up to hundreds of nats, whose ratios no float32 could hold."""
    algorithm = AlgorithmSection.model_validate(VARIANTS[variant])
    batch = random_sequences(5, noise=100.0, reference_noise=100.0)
    terms, token_indices = terms_of(batch, algorithm, slice(0, 12))
    for as_given in (terms, in_float32(terms)):
        dtype = as_given.loss_weights.dtype
        logprobs = torch.from_numpy(batch.logprobs[token_indices]).to(dtype).requires_grad_()
        entropies = torch.from_numpy(batch.entropies[token_indices]).to(dtype)
        output = policy_loss(logprobs, as_given, algorithm, entropies=entropies)
        output.loss.backward()
        assert logprobs.grad is not None
        assert torch.isfinite(output.loss)
        assert torch.isfinite(logprobs.grad).all()
        if dtype == torch.float64:
            oracle = reference_loss(batch.sequences(), algorithm, aggregation_constant=CONSTANT)
            assert float(output.loss.detach()) == pytest.approx(oracle.loss, rel=1e-10)
            expected = np.concatenate(oracle.gradients)[token_indices]
            np.testing.assert_allclose(logprobs.grad.numpy(), expected, rtol=1e-10, atol=1e-10)
        statistics = StepStatistics(algorithm)
        statistics.add(logprobs=logprobs, entropies=entropies, terms=as_given, output=output)
        assert np.isfinite(list(statistics.metrics().values())).all()


def in_float32(terms: TokenTerms) -> TokenTerms:
    values = {field.name: getattr(terms, field.name) for field in dataclasses.fields(terms)}
    is_float = {name for name, value in values.items() if getattr(value, "dtype", None) == torch.float64}
    return TokenTerms(**{name: values[name].float() if name in is_float else values[name] for name in values})


def test_signed_parts_are_exact_for_a_token_that_several_branches_share() -> None:
    algorithm = AlgorithmSection.model_validate({"name": "dapo"})
    ratios = torch.tensor([0.5, 0.9, 1.0, 1.2, 1.6], dtype=torch.float64)
    branches = [2.0, -0.5, 0.25]

    def loss(positive: float, negative: float) -> Tensor:
        ones = torch.ones(5, dtype=torch.float64)
        terms = TokenTerms(
            behaviour_logprobs=-ones,
            advantages_positive=positive * ones,
            advantages_negative=negative * ones,
            loss_weights=ones,
            sequences=torch.zeros(5, dtype=torch.int64),
            num_sequences=1,
            is_current=ones > 0,
        )
        return policy_loss(ratios.log() - 1, terms, algorithm).loss

    apart = sum(float(loss(max(a, 0.0), min(a, 0.0))) for a in branches)
    together = float(loss(sum(max(a, 0.0) for a in branches), sum(min(a, 0.0) for a in branches)))
    assert together == pytest.approx(apart, abs=1e-12)
    netted = float(loss(sum(branches), 0.0))
    assert abs(netted - apart) > 0.01  # one advantage per token would not do


def statistics_of(algorithm: AlgorithmSection) -> StepStatistics:
    ratios = torch.tensor([1.0, 2.0, 0.5, 1.0], dtype=torch.float64)
    advantages = torch.tensor([1.0, 1.0, -1.0, -1.0], dtype=torch.float64)
    is_current = torch.tensor([True, False, True, False])
    statistics = StepStatistics(algorithm)
    for part in (slice(0, 1), slice(1, 4)):
        own = ratios[part]
        terms = TokenTerms(
            behaviour_logprobs=torch.full_like(own, -1.0),
            advantages_positive=advantages[part].clamp(min=0),
            advantages_negative=advantages[part].clamp(max=0),
            loss_weights=torch.ones_like(own),
            sequences=torch.zeros(len(own), dtype=torch.int64),
            num_sequences=1,
            is_current=is_current[part],
        )
        output = policy_loss(own.log() - 1, terms, algorithm)
        statistics.add(
            logprobs=own.log() - 1,
            entropies=torch.full_like(own, 3.0),
            terms=terms,
            output=LossOutput(
                loss=torch.tensor(0.25),
                ratios=output.ratios,
                weights=output.weights,
                kept=output.kept,
                kl_reference=None,
            ),
        )
    return statistics


def test_statistics_are_means_over_tokens_whatever_the_micro_batches() -> None:
    metrics = statistics_of(AlgorithmSection.model_validate({"name": "dapo"})).metrics()
    log_two = np.log(2)
    expected = {
        "train/loss": 0.5,
        "train/entropy": 3.0,
        "train/kl_behaviour": 0.0,
        "train/kl_behaviour_k3": ((1 - log_two) + (log_two - 0.5)) / 4,
        "train/clip_fraction": 0.5,
        "train/clip_fraction_low": 0.25,
        "train/clip_fraction_high": 0.25,
        "train/ratio_mean": 4.5 / 4,
        "train/ratio_max": 2.0,
        "train/ess": 4.5**2 / (4 * 6.25),
        "train/ess_sequence": 1.0,
        "train/mismatch_mean": log_two / 2,
        "train/mismatch_max": log_two,
        "train/mismatch_kl": (log_two - 0.5) / 2,
    }
    assert metrics == pytest.approx(expected)


def test_statistics_tell_what_the_importance_rule_cut_and_masked() -> None:
    off_policy = {**CURRENT, "importance": "mask", "importance_max": 1.5, "importance_min": 0.8}
    metrics = statistics_of(AlgorithmSection.model_validate({"off_policy": off_policy})).metrics()
    assert metrics["train/importance_mean"] == pytest.approx(4.5 / 4)
    assert metrics["train/importance_max"] == pytest.approx(2.0)
    assert metrics["train/importance_cut_fraction"] == 0.25
    assert metrics["train/importance_masked_fraction"] == 0.5
    assert metrics["train/clip_fraction"] == 0.0  # the ratio is against the weights of the step itself


def test_how_far_the_policy_went_since_the_start_of_the_batch_is_a_mean_over_all_its_tokens() -> None:
    algorithm = AlgorithmSection.model_validate({"off_policy": {**CURRENT, "importance": "truncate"}})
    batch = random_sequences(0)
    statistics = StepStatistics(algorithm)
    from_start = []
    for samples, is_first in ((slice(0, 4), True), (slice(4, 12), False)):
        terms, token_indices = terms_of(batch, algorithm, samples, is_first=is_first)
        logprobs = torch.from_numpy(batch.logprobs[token_indices])
        output = policy_loss(logprobs, terms, algorithm)
        statistics.add(
            logprobs=logprobs,
            entropies=torch.zeros_like(logprobs),
            terms=terms,
            output=output,
            weight=0.5,
            loss_weight=0.25,
        )
        from_start.append((batch.start - batch.logprobs)[token_indices] * (not is_first))
    assert statistics.metrics()["train/kl_start"] == pytest.approx(np.concatenate(from_start).mean())


def test_statistics_without_a_token_are_absent_not_zero() -> None:
    assert StepStatistics(AlgorithmSection()).metrics() == {}


def test_agreement_with_the_sampler_is_told_where_nothing_was_trained() -> None:
    statistics = StepStatistics(AlgorithmSection())
    statistics.add_mismatch(torch.tensor([0.5, -0.25]))
    assert statistics.metrics() == pytest.approx(
        {
            "train/mismatch_mean": 0.375,
            "train/mismatch_max": 0.5,
            "train/mismatch_kl": (np.exp(0.5) + np.exp(-0.25) - 2 - 0.25) / 2,
        }
    )


def test_every_preset_names_its_paper() -> None:
    assert set(PRESETS) == set(AlgorithmName)
    assert all("arXiv" in preset.source for name, preset in PRESETS.items() if name is not AlgorithmName.SFT)
