"""From sessions to the weights of their tokens: overlong rules and judge spans."""

import dataclasses
from types import SimpleNamespace
from typing import Any, cast
from uuid import uuid4

import numpy as np
import pytest

from seamlessflow.core.algorithms.kl_shaping import kl_shaped_advantages
from seamlessflow.core.algorithms.mode_aware import JudgeMarkers
from seamlessflow.core.algorithms.options import AlgorithmName
from seamlessflow.core.algorithms.section import AlgorithmSection
from seamlessflow.core.batching.assembler import BatchPlan, assemble_batch
from seamlessflow.core.batching.finished import FinishedSession
from seamlessflow.core.batching.format import Batch, batch_decode, batch_encode
from seamlessflow.core.batching.kl_rewards import kl_into_rewards
from seamlessflow.core.job_spec import JobSpec, TrainObjective
from seamlessflow.core.protocol.credentials import PhaseClaims
from seamlessflow.core.protocol.data_plane import BatchLeaseRequest
from seamlessflow.core.trajectory.prefix_tree import Node, NodeKind
from seamlessflow.core.trajectory.tree_layout import NO_PARENT
from seamlessflow.core.types.tags import Role
from seamlessflow.data_plane.batches.feed import _plan as plan_of_feed
from seamlessflow.data_plane.turns.trajectory_manager.live import LiveJob
from tests.fixtures.random_sessions import random_session

PROMPT, END, ON = 3, 7, 5


def with_spans(node: Node, spans: tuple[int, ...]) -> Node:
    return dataclasses.replace(node, spans=spans)


def session(
    reward: float, *answer: int, domain: str = "", is_truncated: bool = False, version: int = 0
) -> FinishedSession:
    def node(index: int, tokens: tuple[int, ...]) -> Node:
        sampled = index == 1
        return Node(
            index=index,
            parent=0 if sampled else None,
            kind=NodeKind.SAMPLED if sampled else NodeKind.ROOT,
            token_ids=np.array(tokens, dtype="<i4").tobytes(),
            digests=(),
            num_path_tokens=len(tokens) + index,
            logprobs=np.full(len(tokens), -1, dtype="<f4").tobytes() if sampled else b"",
            spans=(0, version) if sampled else (),
        )

    return FinishedSession(
        reward=reward,
        nodes=[node(0, (PROMPT,)), node(1, answer)],
        domain=domain,
        num_turns=1,
        num_sampled_tokens=len(answer),
        is_truncated=is_truncated,
    )


def assemble(
    groups: list[list[FinishedSession]], limit: int = 100, policy_version: int = 0, **algorithm: Any
) -> Batch:
    plan = BatchPlan(
        job_id="j",
        number=1,
        policy_version=policy_version,
        temperature=1.0,
        algorithm=AlgorithmSection.model_validate({"name": "srpo", "advantage_norm": "mean", **algorithm}),
        overlong_tokens=limit,
        judge_markers=JudgeMarkers(end=(END,), on=(ON,)),
    )
    return assemble_batch(groups, plan)


def by_sample(batch: Batch) -> list[list[float]]:
    """Return the advantages of each sample's sampled tokens."""
    both = (batch.advantages_positive + batch.advantages_negative).round(5)
    spans = zip(batch.sample_starts[:-1], batch.sample_starts[1:], strict=True)
    return [both[start + 1 : end].tolist() for start, end in spans]


PAIR = [session(1.0, 1, 1), session(0.0, 1, 1, 1, 1)]


def test_sessions_past_the_limit_keep_their_place_without_an_advantage() -> None:
    batch = assemble([PAIR], limit=3)
    assert by_sample(batch) == [[0.5, 0.5], [0.0] * 4]
    assert batch.loss_weights.sum() == 6


def test_filtered_sessions_leave_the_loss_but_not_the_baseline() -> None:
    batch = assemble([PAIR], limit=3, overlong={"rule": "filter"})
    assert by_sample(batch)[0] == [0.5, 0.5]
    assert batch.loss_weights.sum() == batch.loss_mask.sum() == 2


def test_soft_penalty_changes_rewards_and_leaves_the_outcomes_in_the_metrics() -> None:
    batch = assemble([PAIR], limit=5, overlong={"rule": "shape", "buffer_fraction": 0.4})
    assert batch.rewards.tolist() == [1.0, -0.5]
    assert by_sample(batch)[0] == [0.75, 0.75]
    assert batch.header.reward_mean == 0.5


def turns_of(reward: float, *lengths: int) -> FinishedSession:
    """Make one conversation with this many answers."""
    first = session(reward, *[1] * lengths[0])
    nodes = [*first.nodes]
    for number in lengths[1:]:
        ids = np.full(number, 1, dtype="<i4").tobytes()
        logprobs, last = np.full(number, -1, dtype="<f4").tobytes(), nodes[-1]
        nodes.append(
            dataclasses.replace(last, index=len(nodes), parent=last.index, token_ids=ids, logprobs=logprobs)
        )
    return dataclasses.replace(first, nodes=nodes, num_turns=len(lengths), num_sampled_tokens=sum(lengths))


def dapo_rewards(rollout: dict[str, Any], overlong: dict[str, Any], *group: FinishedSession) -> list[float]:
    """Return rewards after DAPO's overlong rule, for a batch as the batch feed plans it."""
    spec = JobSpec.model_validate(
        {
            "name": "overlong",
            "model": {"source": "artifact://model", "max_model_len": 1000},
            "environment": {"name": "command", "command": ["agent"], "tasks": "artifact://tasks"},
            "rollout": rollout,
            "algorithm": {"name": "dapo", "overlong": overlong},
        }
    )
    ids = {name: uuid4() for name in ("phase_id", "job_id", "project_id", "machine_id")}
    claims = PhaseClaims(**ids, fence=1, role=Role.TRAIN, expires_at_s=0)
    request = BatchLeaseRequest(applied_batch=0, durable_batch=0, policy_version=0)
    job = SimpleNamespace(spec=spec, text=SimpleNamespace(ids=lambda text: ()))
    batch = assemble_batch([group], plan_of_feed(claims, request, cast("LiveJob", job), {}))
    by_session = dict(zip(batch.sessions.tolist(), batch.rewards.tolist(), strict=True))
    return [by_session[number] for number in sorted(by_session)]


def test_the_soft_penalty_applies_to_a_single_answer_that_fills_its_turn() -> None:
    """Budget 20, buffer 4: 16 tokens cost nothing, 18 cost half, 20 cost all; three turns of 15
    tokens cost nothing."""
    rollout = {"max_tokens_per_turn": 20}
    group = [turns_of(1.0, 16), turns_of(1.0, 18), turns_of(1.0, 20), turns_of(1.0, 15, 15, 15)]
    assert dapo_rewards(rollout, {}, *group) == [1.0, 0.5, 0.0, 1.0]
    assert dapo_rewards(rollout, {}, turns_of(1.0, 3, 19, 2), turns_of(0.0, 1)) == [0.25, 0.0]


def test_a_limit_that_the_spec_sets_applies_to_the_whole_session() -> None:
    rollout, overlong = {"max_tokens_per_turn": 20}, {"max_tokens": 50}
    assert dapo_rewards(rollout, overlong, turns_of(1.0, 20), turns_of(1.0, 20, 20, 5)) == [1.0, 0.5]


def test_a_completely_filtered_batch_keeps_its_number_and_teaches_nothing() -> None:
    batch = assemble([PAIR], limit=1, overlong={"rule": "filter"})
    assert by_sample(batch) == [[0.0] * 2, [0.0] * 4]
    assert batch.loss_mask.sum() == 6


def test_likelihood_is_a_mean_over_the_tokens_of_sessions_worth_imitating() -> None:
    batch = assemble([PAIR], name="sft")
    assert by_sample(batch)[0] == [1.0, 1.0]
    assert batch.loss_weights.sum() == 2
    nothing = assemble([[session(0.0, 1), session(0.5, 1)]], name="sft")
    assert by_sample(nothing) == [[0.0], [0.0]]


def test_tokens_beyond_the_bound_are_masked_one_by_one_if_the_scope_is_the_token() -> None:
    aged = dataclasses.replace(PAIR[1], nodes=[PAIR[1].nodes[0], with_spans(PAIR[1].nodes[1], (0, 0, 3, 7))])
    plan: dict[str, Any] = {
        "policy_version": 9,
        "max_staleness": 2,
        "off_policy": {"staleness_scope": "token"},
    }
    batch = assemble([[session(1.0, 1, 1, version=8), aged]], **plan)
    assert by_sample(batch) == [[0.5, 0.5], [0.0, 0.0, 0.0, -0.5]]


@pytest.mark.parametrize("name", ["rloo", "grpo"])
def test_a_session_too_old_to_train_stays_in_the_baseline_with_kl_in_the_reward(name: str) -> None:
    """The rewards are 1, 0 and 1, and the third session is too old: its siblings are compared with
    2/3, not with 1/2."""
    kl_in_reward = {"kl_coef": 1.0, "kl_estimator": "k1", "kl_placement": "reward", "ratio": "token"}
    stale = dataclasses.replace(session(1.0, 5, 5), is_stale=True)
    group = [session(1.0, 1, 1), session(0.0, 2, 2), stale]
    algorithm = AlgorithmSection.model_validate({"name": name, "advantage_norm": "mean", **kl_in_reward})
    batch = assemble([group], **algorithm.model_dump(mode="json"))

    def advantages(kl_of_a_token: float) -> list[float]:
        reference = np.full(len(batch.token_ids), -1.0 - kl_of_a_token)
        shaped = kl_into_rewards(batch, reference, algorithm)
        both = shaped.advantages_positive + shaped.advantages_negative
        return [float(advantage) for advantage in both[batch.loss_mask != 0]]

    expected = {"rloo": [0.5, 0.5, -1, -1], "grpo": [1 / 3, 1 / 3, -2 / 3, -2 / 3]}[name]
    assert advantages(0.0) == pytest.approx(expected, abs=1e-6)
    # All sessions pay the same; so does the untrained one, by the mean of its group.
    assert advantages(0.3) == pytest.approx(expected, abs=1e-6)


def test_a_session_without_a_trained_token_pays_the_mean_kl_of_its_own_group() -> None:
    algorithm = AlgorithmSection.model_validate({"name": "rloo", "kl_coef": 0.5})
    kl, nobody = np.array([1.0, 1.0, 4.0, 10.0]), np.array([0, 0, 1, 3], dtype=np.int32)
    advantages = kl_shaped_advantages(
        kl=kl,
        sessions=nobody,
        rewards=np.array([1.0, 0.0, 1.0, 0.0, 0.0]),
        groups=np.array([0, 0, 0, 1, 1], dtype=np.int32),
        algorithm=algorithm,
    )
    # Group 0: KL 2 and 4, hence 3 for the third: rewards 0, -2, -0.5. Group 1: both pay 10.
    assert advantages.tolist() == pytest.approx([1.25, 1.25, -1.75, 0.0])


def test_judge_and_answer_spans_carry_their_own_advantages() -> None:
    group = [session(1.0, ON, END, 1), session(1.0, 9, END, 1), session(0.0, 9, END, 2), session(0.0, 9, 9)]
    batch = assemble(
        [group], name="step_srpo", judge={"gamma": 0.0, "norm": "mean"}, overlong={"rule": "none"}
    )
    off, third = 1 / 3, 2 / 3
    expected = [[0.5, 0.5, 0.0], [off - 0.5] * 2 + [third], [off - 0.5] * 2 + [-off], [-off, -off]]
    for found, wanted in zip(by_sample(batch), expected, strict=True):
        assert found == pytest.approx(wanted, abs=1e-5)


def test_a_batch_describes_its_sessions_and_groups() -> None:
    other = [session(0.0, 1, domain="code", is_truncated=True), session(0.0, 1, domain="code")]
    batch = assemble([PAIR, other], limit=3)
    assert batch.sessions.tolist() == [0, 1, 2, 3]
    assert batch.groups.tolist() == [0, 0, 1, 1]
    metrics = batch.header.metrics
    assert metrics["rollout/zero_variance_fraction"] == 0.5
    assert (metrics["rollout/length_mean"], metrics["rollout/length_max"]) == (2.0, 4.0)
    assert (metrics["rollout/truncated_fraction"], metrics["rollout/overlong_fraction"]) == (0.25, 0.25)
    assert metrics["rollout/terminated_length_mean"] == pytest.approx((6 + 1) / 3)
    assert (metrics["reward/code/mean"], metrics["reward/other/mean"]) == (0.0, 0.5)


def test_metrics_include_mixed_versions_and_prompt_lengths() -> None:
    begun, plain = session(1.0, 1, 2, 3), session(0.0, 1)
    later = dataclasses.replace(begun, nodes=[begun.nodes[0], with_spans(begun.nodes[1], (0, 4, 2, 5))])

    metrics = assemble([[later, plain]], policy_version=5).header.metrics

    assert metrics["rollout/mixed_version_fraction"] == 0.5
    assert metrics["rollout/prompt_length_mean"] == 1.0


JUDGED: dict[str, Any] = {
    "name": "step_srpo",
    "judge": {"gamma": 0.0, "norm": "mean"},
    "overlong": {"rule": "none"},
}
# Thinking was right once in two cases, not thinking once in three.
MODES = [
    session(1.0, ON, END, 1),
    session(0.0, ON, END, 2),
    session(1.0, 9, END, 3),
    session(0.0, 9, END, 4),
    session(0.0, 9, END, 4, 4),
]
THINKING, NOT_THINKING = 0.5 - 0.4, 1 / 3 - 0.4  # of the judge span: the mode's mean minus the group's


def test_a_session_beyond_the_bound_still_counts_in_the_mode_that_it_chose() -> None:
    """Thinking takes long, so sessions that think become stale first; their outcomes must still count."""
    group = [MODES[0], dataclasses.replace(MODES[1], is_stale=True), *MODES[2:]]
    found = by_sample(assemble([group], **JUDGED))
    assert len(found) == 4, "of the stale one there is no token"
    assert found[0] == pytest.approx([THINKING, THINKING, 0.5], abs=1e-5)
    assert found[1] == pytest.approx([NOT_THINKING, NOT_THINKING, 2 / 3], abs=1e-5)


def test_a_judge_span_too_old_to_be_trained_still_says_which_mode_was_chosen() -> None:
    aged = [
        dataclasses.replace(one, nodes=[one.nodes[0], with_spans(one.nodes[1], (0, 0, 2, 5))])
        for one in MODES
    ]
    found = by_sample(
        assemble([aged], policy_version=5, max_staleness=2, off_policy={"staleness_scope": "token"}, **JUDGED)
    )
    assert found[0] == pytest.approx([0.0, 0.0, 0.5], abs=1e-5)
    assert found[3] == pytest.approx([0.0, 0.0, -1 / 3], abs=1e-5)


def test_a_filtered_session_still_counts_in_the_mode_that_it_chose() -> None:
    cut = dataclasses.replace(MODES[1], is_truncated=True)
    found = by_sample(assemble([[MODES[0], cut, *MODES[2:]]], **{**JUDGED, "overlong": {"rule": "filter"}}))
    assert found[0] == pytest.approx([THINKING, THINKING, 0.5], abs=1e-5)
    assert found[1] == [0.0, 0.0, 0.0]


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("objective", TrainObjective)
@pytest.mark.parametrize("name", ["step_srpo", "reinforce_plus_plus_baseline", "grpo", "sft"])
def test_trees_weigh_what_their_branches_do(name: str, objective: TrainObjective, seed: int) -> None:
    """Sum the factors of the gradient by token id, on trees and on branches written out."""
    rng = np.random.default_rng(seed)
    groups = [
        [
            FinishedSession(float(rng.integers(0, 2)), random_session(rng, num_nodes=40, vocabulary=8))
            for _ in range(4)
        ]
        for _ in range(3)
    ]
    algorithm = AlgorithmSection.model_validate({"name": name, "judge": {"gamma": 0.3}})
    sums = []
    for is_tree in (True, False):
        plan = BatchPlan(
            job_id="j",
            number=1,
            policy_version=2,
            temperature=1.0,
            algorithm=algorithm,
            judge_markers=JudgeMarkers(end=(END,), on=(ON,)),
            objective=objective,
            is_tree=is_tree,
        )
        batch = assemble_batch(groups, plan)
        arrays = (batch.advantages_positive, batch.advantages_negative, batch.loss_weights)
        sums.append([np.bincount(batch.token_ids, weights=array, minlength=8) for array in arrays])
    np.testing.assert_allclose(sums[0], sums[1], atol=1e-4)
    assert np.abs(sums[0]).max() > 1


def without_prompt(one: FinishedSession) -> FinishedSession:
    return dataclasses.replace(one, nodes=[dataclasses.replace(one.nodes[0], token_ids=b""), one.nodes[1]])


@pytest.mark.parametrize("name", AlgorithmName)
@pytest.mark.parametrize("is_tree", [True, False])
def test_whatever_an_agent_leaves_becomes_a_batch_of_finite_numbers(
    name: AlgorithmName, is_tree: bool
) -> None:
    """Groups of one, equal or extreme rewards, answers of no or one token, empty sessions."""
    nothing = FinishedSession(reward=0.0, nodes=[])
    algorithm = AlgorithmSection.model_validate({"name": name.value})
    for groups, has_tokens in (
        ([[session(1.0, 1, 2)]], True),
        ([[session(1.0, 1)], [session(0.0, 2)]], True),
        ([[session(1.0, 1, 2), session(1.0, 3)]], True),
        ([[session(1.0), session(0.0, 1)]], name is not AlgorithmName.SFT),
        ([[nothing, session(1.0, 1)]], True),
        ([[session(1e6, 1), session(-1e6, 2), session(1e6 - 1, 2, 3)]], True),
        ([[session(0.1 + 0.2, 1), session(0.3, 2)]], True),
        ([[session(1.0, *[1] * 200), session(0.0, *[2] * 300)]], True),
        ([[without_prompt(session(1.0, 1, 2)), without_prompt(session(0.0, 1))]], True),
        ([[without_prompt(session(1.0, 1)), without_prompt(session(0.0, 2))]], False),
        ([[nothing, nothing]], False),
    ):
        plan = BatchPlan(
            job_id="j",
            number=1,
            policy_version=0,
            temperature=1.0,
            algorithm=algorithm,
            overlong_tokens=50,
            judge_markers=JudgeMarkers(end=(END,), on=(ON,)),
            is_tree=is_tree,
        )
        batch = batch_decode(batch_encode(assemble_batch(groups, plan)))
        arrays = (batch.advantages_positive, batch.advantages_negative, batch.loss_weights, batch.rewards)
        assert all(np.isfinite(array).all() for array in arrays)
        assert np.isfinite(list(batch.header.metrics.values())).all()
        assert batch.loss_mask.any() or not has_tokens
        assert not batch.loss_mask[batch.layout.predecessors == NO_PARENT].any(), "nothing predicts it"


@pytest.mark.parametrize("logprob", [-np.inf, np.inf, np.nan])
@pytest.mark.parametrize("is_tree", [True, False])
def test_a_token_whose_logprob_is_no_number_is_context(logprob: float, is_tree: bool) -> None:
    """A faulty engine may serve logprobs that are not finite. Ratios to them mean nothing, so they do not train."""
    whole = session(1.0, 1, 2, 3)
    answer = dataclasses.replace(whole.nodes[1], logprobs=np.array([-1, logprob, -2], dtype="<f4").tobytes())
    group = [dataclasses.replace(whole, nodes=[whole.nodes[0], answer]), session(0.0, 4)]
    algorithm = AlgorithmSection.model_validate({"name": "reinforce_plus_plus"})
    plan = BatchPlan(
        job_id="j", number=1, policy_version=0, temperature=1.0, algorithm=algorithm, is_tree=is_tree
    )
    batch = assemble_batch([group], plan)
    assert batch.token_ids[batch.loss_mask != 0].tolist() == [1, 3, 4]
    shaped = kl_into_rewards(batch, np.zeros(len(batch.token_ids)), algorithm)
    assert np.isfinite(shaped.advantages_positive).all()
    assert np.isfinite(shaped.advantages_negative).all()
