"""Overlong answers, judge spans, epochs and stages, KL in the reward: rules around the advantages."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from seamlessflow.core.algorithms.curriculum import epoch_plan, stage_is_over, stage_tasks
from seamlessflow.core.algorithms.mode_aware import JudgeMarkers, judge_span, mode_advantages
from seamlessflow.core.algorithms.options import AdvantageNorm
from seamlessflow.core.algorithms.overlong import is_overlong, soft_penalties
from seamlessflow.core.algorithms.section import AlgorithmSection, StageSection
from seamlessflow.core.batching.kl_rewards import kl_into_rewards
from tests.fixtures.plain_advantages import plain_kl_advantages
from tests.fixtures.trainer_harness import make_batch


def test_soft_penalty_grows_over_the_buffer_and_stops_at_the_limit() -> None:
    penalties = soft_penalties(np.array([0, 16, 18, 20, 99]), limit=20, buffer=4, penalty=0.5)
    assert penalties.tolist() == [0.0, 0.0, -0.25, -0.5, -0.5]


def test_an_overlong_session_is_past_the_limit_or_cut_by_the_limit_of_a_turn() -> None:
    overlong = is_overlong(np.array([20, 21, 3]), np.array([False, False, True]), limit=20)
    assert overlong.tolist() == [False, True, True]


MARKERS = JudgeMarkers(end=(7, 8), on=(5,))


@pytest.mark.parametrize(
    "sampled,num_tokens,is_on",
    [
        ([1, 5, 7, 8, 9], 4, True),
        ([1, 7, 8, 5], 3, False),  # a later mark is part of the answer
        ([7, 1, 8, 5], 0, False),
        ([7], 0, False),
        ([], 0, False),
        ([7, 8, 7, 8], 2, False),
    ],
)
def test_judge_span_ends_with_the_first_end_marker(sampled: list[int], num_tokens: int, is_on: bool) -> None:
    span = judge_span(np.array(sampled, dtype=np.int32), MARKERS)
    assert (span.num_tokens, span.is_on) == (num_tokens, is_on)


def modes(
    rewards: list[float], is_on: list[int], *, gamma: float = 0.0, bias: float = 0.0
) -> list[list[float]]:
    found = mode_advantages(
        np.array(rewards), np.array(is_on, dtype=bool), gamma=gamma, bias=bias, norm=AdvantageNorm.MEAN
    )
    return [found.judge.round(9).tolist(), found.answer.round(9).tolist()]


def test_the_judge_span_is_rewarded_for_its_mode_and_the_answer_relative_to_its_mode() -> None:
    judge, answer = modes([1.0, 1.0, 1.0, 0.0], [1, 1, 0, 0])
    assert judge == [0.25, 0.25, -0.25, -0.25]
    assert answer == [0.0, 0.0, 0.5, -0.5]


def test_thinking_that_is_barely_better_does_not_win() -> None:
    judge, _ = modes([1.0, 1.0, 1.0, 1.0], [1, 1, 0, 0], bias=0.01)
    assert judge == [0.0, 0.0, 0.01, 0.01]
    judge, _ = modes([1.0, 1.0, 1.0, 0.0], [1, 1, 0, 0], bias=0.01)
    assert judge[0] > 0 > judge[2]


def test_with_only_one_mode_the_judge_span_learns_only_from_its_own_share() -> None:
    assert modes([1.0, 0.0], [1, 1])[0] == [0.0, 0.0]
    judge, _ = modes([1.0, 0.0], [1, 1], gamma=0.3)
    assert judge == pytest.approx([0.3, -0.3], rel=1e-4)


POOL = np.arange(4, dtype=np.int32)


def test_an_epoch_omits_tasks_that_were_all_correct_and_keeps_mixed_wrong_and_unseen_ones() -> None:
    plan = epoch_plan(POOL, lowest_rewards={0: 1.0, 1: 0.0, 2: 0.5}, correct_reward=1.0, seed=(0, 1))
    assert sorted(plan.order.tolist()) == [1, 2, 3]
    assert plan.num_dropped == 1
    assert plan.reason == "3 of 4 tasks; 1 were all correct"


def test_a_solved_pool_starts_again_in_full() -> None:
    plan = epoch_plan(POOL, lowest_rewards=dict.fromkeys(range(4), 1.0), correct_reward=1.0, seed=(0, 1))
    assert sorted(plan.order.tolist()) == [0, 1, 2, 3]
    assert "in full" in plan.reason


@given(num_tasks=st.integers(1, 50), solved=st.sets(st.integers(0, 49)), seed=st.integers(0, 100))
def test_an_epoch_contains_each_kept_task_once_and_is_reproducible(
    num_tasks: int, solved: set[int], seed: int
) -> None:
    pool = np.arange(num_tasks, dtype=np.int32)
    rewards = dict.fromkeys(solved, 1.0)
    orders = [
        epoch_plan(pool, lowest_rewards=rewards, correct_reward=1.0, seed=(seed, 3)).order.tolist()
        for _ in range(2)
    ]
    assert orders[0] == orders[1]
    assert set(orders[0]) == (set(range(num_tasks)) - solved or set(range(num_tasks)))
    assert len(orders[0]) == len(set(orders[0]))


def test_a_stage_takes_the_tasks_of_its_domains() -> None:
    domains = ["math", "code", "", "math"]
    assert stage_tasks(domains, StageSection(name="a", domains=["math"])).tolist() == [0, 3]
    assert (
        stage_tasks(domains, StageSection(name="b")).tolist()
        == stage_tasks(domains, None).tolist()
        == [0, 1, 2, 3]
    )


def test_a_stage_ends_by_updates_or_by_a_metric_over_its_window() -> None:
    by_update = StageSection(name="a", until_update=3)
    assert stage_is_over(by_update, num_updates=2, recent=[]) is None
    assert stage_is_over(by_update, num_updates=3, recent=[]) is not None
    by_metric = StageSection(name="b", until_metric="reward/mean", at_least=0.5, window=2)
    assert stage_is_over(by_metric, num_updates=9, recent=[1.0]) is None
    assert stage_is_over(by_metric, num_updates=9, recent=[0.5, 0.4]) is None
    assert "reward/mean is 0.6 over 2 updates" in str(
        stage_is_over(by_metric, num_updates=9, recent=[0.8, 0.4])
    )
    assert stage_is_over(StageSection(name="by hand"), num_updates=10**6, recent=[9.0]) is None


@pytest.mark.parametrize("name", ["rloo", "reinforce_plus_plus"])
def test_kl_in_the_reward_equals_a_plain_float_computation(name: str) -> None:
    algorithm = AlgorithmSection.model_validate({"name": name, "kl_coef": 0.3})
    batch = make_batch(4)
    reference = batch.behaviour_logprobs + np.random.default_rng(0).normal(0, 0.3, len(batch.token_ids))
    shaped = kl_into_rewards(batch, reference, algorithm)
    found = shaped.advantages_positive + shaped.advantages_negative
    np.testing.assert_allclose(found, plain_kl_advantages(batch, reference, algorithm), atol=1e-6)
    assert (found[batch.loss_mask == 0] == 0).all()
