"""How far rollout runs ahead: as far as the trainer needs, never beyond the staleness bound."""

import dataclasses

import pytest
from hypothesis import given
from hypothesis import strategies as st

from seamlessflow.core.admission.pace import JobPace, MeasuredBatch, pace_of
from seamlessflow.core.admission.rule import (
    Admitting,
    GroupCounts,
    RunAhead,
    num_admissible,
    num_groups_needed,
)
from seamlessflow.core.algorithms.staleness_bound import StalenessBound
from tests.fixtures.admission_simulation import SimulatedJob, simulated

JOB = Admitting(groups_per_batch=16, num_updates=1000, bound=StalenessBound(3))
NONE = GroupCounts(num_waiting=0, num_unserved=0, num_at_trainer=0, num_late=0, next_index=0, last_batch=0)


def pace(*sojourns_s: float, step_s: float = 1.0, idle_share: float = 0.0) -> JobPace:
    return JobPace(
        step_s=step_s, idle_share=idle_share, sojourns_s=sojourns_s, longest_s=max(sojourns_s, default=0.0)
    )


def test_groups_that_are_ready_within_a_step_need_one_batch_ahead() -> None:
    assert num_groups_needed(JOB, pace(0.2, 0.5, 0.9)) == 32


def test_the_example_of_the_rule() -> None:
    assert num_groups_needed(JOB, pace(*[0.5] * 9, 1.5)) == 36


def test_a_sojourn_of_several_steps_needs_a_batch_for_each() -> None:
    assert num_groups_needed(JOB, pace(1.5)) == 48
    assert num_groups_needed(JOB, pace(2.5)) == 64
    assert num_groups_needed(JOB, pace(9.5)) == 64  # the bound


def test_steps_that_become_shorter_need_more_groups_at_once() -> None:
    needed = [num_groups_needed(JOB, pace(0.9, step_s=step_s)) for step_s in (1.0, 0.9, 0.4)]
    assert needed == [32, 48, 64]


def test_a_trainer_that_waits_brings_the_limit_up_to_the_bound() -> None:
    needed = [num_groups_needed(JOB, pace(0.5, idle_share=share)) for share in (0.0, 0.025, 0.05, 0.1, 0.9)]
    assert needed == [32, 40, 48, 64, 64]


def test_nothing_measured_yet_means_one_batch_ahead() -> None:
    assert num_groups_needed(JOB, None) == 32
    assert num_groups_needed(JOB, pace()) == 32


def test_a_job_may_ask_for_the_bound() -> None:
    job = dataclasses.replace(JOB, run_ahead=RunAhead.TO_BOUND)
    assert num_groups_needed(job, pace(0.1)) == 64


def test_late_groups_are_replaced_as_far_as_the_bound_allows() -> None:
    counts = dataclasses.replace(NONE, num_waiting=20, num_unserved=16, num_at_trainer=16, num_late=10)
    assert num_admissible(JOB, counts, pace(0.5)) == 6
    many = dataclasses.replace(counts, num_waiting=44, num_late=44)
    assert num_admissible(JOB, many, pace(0.5)) == 4


def test_engines_that_lag_count_for_the_bound_only() -> None:
    """The trainer has nothing; two published batches are not served by an engine within the bound."""
    counts = dataclasses.replace(NONE, num_waiting=16, num_unserved=32, num_at_trainer=0)
    assert num_admissible(JOB, counts, pace(0.5)) == 16


def test_the_last_updates_need_no_more_than_one_batch_to_spare() -> None:
    counts = dataclasses.replace(NONE, num_waiting=20, last_batch=999)
    assert num_admissible(JOB, counts, pace(9.0)) == 12
    assert num_admissible(JOB, dataclasses.replace(counts, last_batch=1000), pace(9.0)) == 0


@given(
    max_lag=st.integers(0, 8), per_batch=st.integers(1, 40), waiting=st.integers(0, 200), at_trainer=st.integers(0, 80),
    unserved=st.integers(0, 80), late=st.integers(0, 200), idle=st.floats(0, 1),
    sojourns=st.lists(st.floats(0, 50), max_size=20), step_s=st.floats(0.01, 20),
)  # fmt: skip
def test_no_measurement_leads_beyond_the_bound_or_starves_an_empty_job(
    max_lag: int, per_batch: int, waiting: int, at_trainer: int, unserved: int, late: int, idle: float,
    sojourns: list[float], step_s: float,
) -> None:  # fmt: skip
    job = Admitting(groups_per_batch=per_batch, num_updates=100, bound=StalenessBound(max_lag))
    counts = dataclasses.replace(
        NONE, num_waiting=waiting, num_unserved=max(unserved, at_trainer), num_at_trainer=at_trainer,
        num_late=min(late, waiting),
    )  # fmt: skip
    measured = pace(*sojourns, step_s=step_s, idle_share=idle)
    admitted = num_admissible(job, counts, measured)
    to_bound = num_admissible(dataclasses.replace(job, run_ahead=RunAhead.TO_BOUND), counts, measured)
    assert 0 <= admitted <= max(per_batch * (max_lag + 1) - waiting - counts.num_unserved, 0)
    assert admitted <= to_bound
    assert num_admissible(job, NONE, measured) >= per_batch


def test_waits_are_averaged_and_steps_are_medians() -> None:
    batches = [
        MeasuredBatch(step_s=1.0, wait_s=0.0, sojourns_s=(0.5,), longest_s=0.4),
        MeasuredBatch(step_s=30.0, wait_s=0.0, sojourns_s=(0.7,), longest_s=0.9),  # it compiled
        MeasuredBatch(step_s=1.0, wait_s=1.0, sojourns_s=(), longest_s=0.3),
    ]
    measured = pace_of(batches)
    assert measured is not None
    assert (measured.step_s, measured.longest_s, measured.sojourns_s) == (1.0, 0.9, (0.5, 0.7))
    assert measured.idle_share == pytest.approx(1 / 6)
    assert pace_of([]) is None


@pytest.mark.parametrize(
    "job, most_stale",
    [
        pytest.param(SimulatedJob(answer_s=0.1, spread=0.5, num_slots=64, step_s=2.0), 1.1, id="short answers"),
        pytest.param(
            SimulatedJob(answer_s=0.3, spread=0.9, longest_s=1.4, num_slots=128, step_s=2.0), 1.1, id="a long tail"
        ),
        pytest.param(
            SimulatedJob(answer_s=0.4, spread=0.9, longest_s=3.0, num_slots=128, step_s=2.0), 2.2,
            id="a tail beyond the step",
        ),
        pytest.param(
            SimulatedJob(answer_s=0.2, spread=0.9, num_slots=8, step_s=2.0), 1.5, id="rollout is the bottleneck"
        ),
        pytest.param(
            SimulatedJob(
                answer_s=0.07, spread=0.5, num_slots=512, slows_at=4, step_s=2.0, groups_per_batch=8, num_updates=80
            ),
            1.8, id="engines that slow down with the number of answers",
        ),
    ],
)  # fmt: skip
def test_the_trainer_is_as_busy_as_with_all_that_the_bound_allows(
    job: SimulatedJob, most_stale: float
) -> None:
    as_needed, to_bound = (simulated(job, run_ahead=run_ahead) for run_ahead in RunAhead)
    assert as_needed.updates_per_s >= 0.98 * to_bound.updates_per_s
    assert as_needed.mean_staleness <= most_stale
    assert as_needed.mean_staleness <= to_bound.mean_staleness + 0.05


def test_answers_that_grow_longer_in_mid_run_do_not_starve_the_trainer() -> None:
    job = SimulatedJob(answer_s=0.2, spread=0.5, num_slots=256, step_s=1.0, longer_after=30, longer_by=6.0)
    as_needed, to_bound = (simulated(job, run_ahead=run_ahead) for run_ahead in RunAhead)
    assert as_needed.updates_per_s >= 0.95 * to_bound.updates_per_s
