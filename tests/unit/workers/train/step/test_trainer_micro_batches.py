"""Cutting a batch into micro-batches loses and doubles nothing."""

import dataclasses
from collections.abc import Sequence

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from seamlessflow.core.algorithms.section import AlgorithmSection
from seamlessflow.core.batching.assembler import BatchPlan, assemble_batch
from seamlessflow.core.batching.finished import FinishedSession
from seamlessflow.core.batching.format import Batch
from seamlessflow.core.batching.mini_batches import mini_batches_cut
from seamlessflow_workers.train.step.micro_batches import (
    MEASURED_STRIDE,
    MicroBatch,
    TrainPlan,
    own_micro_batches,
    plan_batch,
)
from tests.fixtures.random_sessions import random_session
from tests.fixtures.random_trees import branch_tokens
from tests.fixtures.trainer_harness import make_batch

Token = tuple[int, int, float, float, int]


def plan(
    batch: Batch,
    *,
    micro_batch_tokens: int = 64,
    max_staleness: int = 0,
    is_tree: bool = False,
    is_offline: bool = False,
    mini_batches: Sequence[NDArray[np.bool_]] = (),
    **options: object,
) -> TrainPlan:
    return plan_batch(
        batch,
        step_version=batch.header.policy_version,
        algorithm=AlgorithmSection.model_validate(
            {"name": "srpo", "max_staleness": max_staleness, **options}
        ),
        aggregation_constant=1.0,
        micro_batch_tokens=micro_batch_tokens,
        is_tree=is_tree,
        is_offline=is_offline,
        mini_batches=mini_batches,
    )


def trained_tokens(batch: Batch) -> list[Token]:
    """(input before, target, behaviour, advantage, version) of every trained token, as the token mean weighs it."""
    scale = 1.0 / int(batch.loss_mask.sum())
    return sorted(
        (
            int(batch.token_ids[i - 1]),
            int(batch.token_ids[i]),
            float(batch.behaviour_logprobs[i]),
            float(np.float32(float(batch.advantages_positive[i] + batch.advantages_negative[i]) * scale)),
            int(batch.versions[i]),
        )
        for i in np.flatnonzero(batch.loss_mask)
    )


def computed_tokens(micro_batches: list[MicroBatch]) -> list[Token]:
    return sorted(
        (
            int(micro.token_ids[row, column]),
            int(target),
            float(behaviour),
            float(positive + negative),
            int(version),
        )
        for micro in micro_batches
        for row, column, target, behaviour, positive, negative, version in zip(
            micro.rows,
            micro.columns,
            micro.targets,
            micro.behaviour_logprobs,
            micro.advantages_positive,
            micro.advantages_negative,
            micro.versions,
            strict=True,
        )
    )


@given(number=st.integers(1, 10_000), micro_batch_tokens=st.integers(1, 300))
def test_every_trained_token_is_computed_once_within_the_budget(number: int, micro_batch_tokens: int) -> None:
    batch = make_batch(number)
    result = plan(batch, micro_batch_tokens=micro_batch_tokens)
    assert computed_tokens(result.micro_batches) == trained_tokens(batch)
    assert result.num_trained_tokens == int(batch.loss_mask.sum())
    for micro in result.micro_batches:
        assert micro.token_ids.size <= micro_batch_tokens or len(micro.token_ids) == 1


def test_inputs_are_the_tokens_of_the_sample_from_its_start() -> None:
    batch = make_batch(5)
    (micro,) = plan(batch, micro_batch_tokens=10**6).micro_batches
    spans = zip(batch.sample_starts[:-1], batch.sample_starts[1:], strict=True)
    samples = [batch.token_ids[start:end].tolist() for start, end in spans]
    for row, inputs in enumerate(micro.token_ids):
        length = int(micro.columns[micro.rows == row].max()) + 1
        assert any(sample[:length] == inputs[:length].tolist() for sample in samples)
        assert not inputs[length:].any()


def with_flat_samples(batch: Batch, samples: list[int]) -> Batch:
    is_flat = np.isin(batch.layout.samples, samples)
    return dataclasses.replace(
        batch,
        advantages_positive=np.where(is_flat, np.float32(0), batch.advantages_positive),
        advantages_negative=np.where(is_flat, np.float32(0), batch.advantages_negative),
    )


def test_samples_without_advantage_are_skipped_but_counted() -> None:
    batch = with_flat_samples(make_batch(7), [0])
    first = slice(int(batch.sample_starts[0]), int(batch.sample_starts[1]))
    assert batch.loss_mask[first].any()
    without_kl, with_kl = plan(batch), plan(batch, kl_coef=0.1)
    assert without_kl.num_trained_tokens == with_kl.num_trained_tokens == int(batch.loss_mask.sum())
    num_skipped = int(batch.loss_mask[first].sum())
    assert (
        len(computed_tokens(without_kl.micro_batches))
        == len(computed_tokens(with_kl.micro_batches)) - num_skipped
    )


def test_stale_samples_are_neither_computed_nor_counted() -> None:
    batch = make_batch(20)
    first = slice(int(batch.sample_starts[0]), int(batch.sample_starts[1]))
    versions = batch.versions.copy()
    versions[first] -= 3
    batch = dataclasses.replace(batch, versions=versions)
    stale, admitted = plan(batch, max_staleness=2), plan(batch, max_staleness=3)
    assert (stale.num_stale_samples, admitted.num_stale_samples) == (1, 0)
    assert admitted.num_trained_tokens - stale.num_trained_tokens == int(batch.loss_mask[first].sum())
    assert (stale.staleness_max, admitted.staleness_max) == (0, 3)


def test_recorded_tokens_have_no_age() -> None:
    """They are of other jobs' versions, so the batch names none, and no bound leaves one out."""
    batch = make_batch(20)
    batch = dataclasses.replace(batch, versions=np.full_like(batch.versions, -1))
    assert plan(batch, max_staleness=1000).num_trained_tokens == 0
    for scope in ("sample", "token"):
        recorded = plan(batch, is_offline=True, off_policy={"staleness_scope": scope})
        assert recorded.num_trained_tokens == int(batch.loss_mask.sum())
        assert (recorded.num_stale_samples, recorded.num_stale_tokens) == (0, 0)
        assert (recorded.staleness_mean, recorded.staleness_max) == (None, None)
        assert computed_tokens(recorded.micro_batches) == trained_tokens(batch)


def test_batch_without_contrast_has_nothing_to_compute() -> None:
    result = plan(make_batch(3, is_flat=True))
    assert result.micro_batches == []
    assert result.num_trained_tokens > 0


def test_of_samples_without_advantage_a_few_are_measured_and_stand_for_all_in_turn() -> None:
    batch = make_batch(7, is_flat=True)
    seen: set[int] = set()
    for number in range(MEASURED_STRIDE):
        result = plan(dataclasses.replace(batch, header=msgspec.structs.replace(batch.header, number=number)))
        token_indices = {int(place) for micro in result.measured for place in micro.token_indices}
        assert result.measured_weight * len(token_indices) == pytest.approx(result.num_trained_tokens)
        assert not seen & token_indices
        seen |= token_indices
    assert seen == set(np.flatnonzero(batch.loss_mask).tolist())


def test_at_least_one_sample_without_advantage_is_measured() -> None:
    batch = with_flat_samples(make_batch(7), [2])
    for number in range(MEASURED_STRIDE):
        result = plan(dataclasses.replace(batch, header=msgspec.structs.replace(batch.header, number=number)))
        assert (sum(micro.num_sequences for micro in result.measured), result.measured_weight) == (1, 1.0)


def test_a_batch_in_which_all_samples_have_a_gradient_measures_none() -> None:
    result = plan(make_batch(7))
    assert (result.measured, result.measured_weight) == ([], 0.0)


def test_a_trained_first_token_is_refused_because_nothing_predicts_it() -> None:
    batch = make_batch(3)
    mask = batch.loss_mask.copy()
    mask[batch.sample_starts[2]] = 1
    with pytest.raises(ValueError, match="first token"):
        plan(dataclasses.replace(batch, loss_mask=mask))


def test_stale_tokens_alone_are_left_out_where_the_scope_is_the_token() -> None:
    batch = make_batch(20)
    trained = np.flatnonzero(batch.loss_mask)
    versions = batch.versions.copy()
    versions[trained[::3]] -= 5
    versions[trained[0]] = -1  # unknown: never trained
    batch = dataclasses.replace(batch, versions=versions)
    result = plan(batch, max_staleness=4, off_policy={"staleness_scope": "token"})
    assert result.num_stale_tokens == len(trained[::3])
    assert result.num_trained_tokens == len(trained) - len(trained[::3])
    weights = np.concatenate([micro.loss_weights for micro in result.micro_batches])
    assert weights.sum() == pytest.approx(1.0)
    token_indices = np.concatenate([micro.token_indices for micro in result.micro_batches])
    assert sorted(token_indices.tolist()) == sorted(set(trained.tolist()) - set(trained[::3].tolist()))


def make_tree_batch(seed: int) -> Batch:
    """Random conversations of two groups as trees; tokens say nothing about where they stand."""
    rng = np.random.default_rng(seed)
    groups = [
        [
            FinishedSession(float(rng.normal()), random_session(rng, num_nodes=12, vocabulary=50))
            for _ in range(3)
        ]
        for _ in range(2)
    ]
    return assemble_batch(
        groups,
        BatchPlan(
            job_id="job",
            number=1,
            policy_version=2,
            temperature=1.0,
            algorithm=AlgorithmSection(),
            is_tree=True,
        ),
    )


@given(seed=st.integers(0, 2000), micro_batch_tokens=st.integers(1, 300), max_staleness=st.integers(0, 2))
def test_on_trees_every_admitted_token_is_predicted_once_from_its_own_path(
    seed: int, micro_batch_tokens: int, max_staleness: int
) -> None:
    try:
        batch = make_tree_batch(seed)
    except ValueError:
        return  # these conversations hold nothing to train
    result = plan(batch, micro_batch_tokens=micro_batch_tokens, max_staleness=max_staleness, is_tree=True)
    token_indices = [int(place) for micro in result.micro_batches for place in micro.token_indices]
    assert len(token_indices) == len(set(token_indices)) <= result.num_trained_tokens
    has_advantage = (batch.advantages_positive != 0) | (batch.advantages_negative != 0)
    fresh = (batch.loss_mask != 0) & (batch.versions >= 2 - max_staleness)
    assert set(token_indices) <= set(np.flatnonzero(fresh).tolist())
    if max_staleness == 2:
        assert set(np.flatnonzero((batch.loss_mask != 0) & has_advantage).tolist()) <= set(token_indices)
    branches = {branch[-1]: branch for branch in branch_tokens(batch.layout)}
    above = {token: branch[: branch.index(token)] for branch in branches.values() for token in branch}
    for micro in result.micro_batches:
        assert micro.tree is not None
        assert micro.token_ids.shape == (1, micro.tree.num_tokens)
        assert micro.tree.num_tokens <= micro_batch_tokens or micro.num_sequences == 1
        own = {
            token: branch[: branch.index(token) + 1]
            for branch in branch_tokens(micro.tree)
            for token in branch
        }
        samples = batch.layout.samples[micro.token_indices]
        assert len(np.unique(samples)) == micro.num_sequences
        assert (np.diff(micro.sequences)[np.diff(samples) != 0] != 0).all()
        for place, column, target in zip(micro.token_indices, micro.columns, micro.targets, strict=True):
            assert target == batch.token_ids[place]
            seen = micro.token_ids[0][own[int(column)]].tolist()
            assert seen == batch.token_ids[above[int(place)]].tolist()


@given(seed=st.integers(0, 50), budget=st.integers(8, 60), num_ranks=st.integers(1, 5))
def test_ranks_compute_every_micro_batch_once_and_equally_many(
    seed: int, budget: int, num_ranks: int
) -> None:
    micro_batches = plan(make_batch(seed), micro_batch_tokens=budget, is_tree=True).micro_batches
    shares = [own_micro_batches(micro_batches, rank=rank, num_ranks=num_ranks) for rank in range(num_ranks)]
    assert len({len(share) for share in shares}) == 1
    counted = [micro for share in shares for micro, counts in share if counts]
    assert sorted(map(id, counted)) == sorted(map(id, micro_batches))
    for share in shares:
        for micro, counts in share:
            arrays = (micro.loss_weights, micro.advantages_positive, micro.advantages_negative)
            assert counts or not any(array.any() for array in arrays)


def test_trees_are_refused_by_a_trainer_of_branches() -> None:
    with pytest.raises(ValueError, match="contains trees"):
        plan(make_tree_batch(1))


@given(
    seed=st.integers(1, 500),
    num_mini_batches=st.integers(1, 4),
    aggregation=st.sampled_from(["token_mean", "sequence_mean"]),
)
def test_each_mini_batch_has_a_loss_of_its_own(seed: int, num_mini_batches: int, aggregation: str) -> None:
    """Its weights add up to one, and the tokens of all together are those of the batch."""
    batch = make_batch(seed)
    batch = dataclasses.replace(batch, groups=(np.arange(10) // 2).astype(np.int32))
    selections = mini_batches_cut(batch.groups, num_mini_batches, seed=seed, batch_number=1)
    result = plan(batch, mini_batches=selections, aggregation=aggregation)
    for micro_batches, selected in zip(result.mini_batches, selections, strict=True):
        tokens = np.flatnonzero((batch.loss_mask != 0) & selected[batch.layout.samples])
        token_indices = np.concatenate(
            [np.empty(0, np.int64), *(micro.token_indices for micro in micro_batches)]
        )
        assert sorted(token_indices.tolist()) == tokens.tolist()
        if len(tokens):
            assert sum(float(micro.loss_weights.sum()) for micro in micro_batches) == pytest.approx(1.0)
    assert result.num_trained_tokens == sum(len(micro.token_indices) for micro in result.micro_batches)
