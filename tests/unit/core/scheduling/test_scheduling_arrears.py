"""What jobs are owed: nobody has less than its part for long, whatever a moment's whole machines allow."""

from dataclasses import replace
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from seamlessflow.core.lifecycle.jobs import JobState
from seamlessflow.core.scheduling.passes.arrears import LEAST_LIMIT_S, Arrears, Claim, differences, limit_s
from seamlessflow.core.scheduling.snapshot import JobView, Snapshot
from tests.fixtures.fleet_simulation import Costs, Load, Simulation

A, B, C = (UUID(int=number) for number in (1, 2, 3))
JOB = JobView(id=A, order=1, state=JobState.RUNNING)
MANY = 100
WARM_UP_S, MEASURED_S = 40.0, 200.0


def claim(job_id: UUID, *, held: int, wanted: int = MANY, weight: float = 1.0, priority: int = 0) -> Claim:
    job = replace(
        JOB, id=job_id, project_id=job_id, project_weight=weight, priority=priority, priority_ceiling=100
    )
    return Claim(job, wanted=wanted, held_in={0: held}, reach=frozenset({0}))


def test_what_cannot_be_divided_is_owed_to_who_got_less() -> None:
    third = differences([claim(A, held=3), claim(B, held=3), claim(C, held=2)])
    assert third == pytest.approx({A: -1 / 3, B: -1 / 3, C: 2 / 3})


def test_exact_shares_differ_from_nothing() -> None:
    assert not differences([claim(A, held=2), claim(B, held=2), claim(C, held=4, weight=2.0)])


def test_machines_that_nobody_else_could_use_are_no_debt() -> None:
    assert not differences([claim(A, held=7), claim(B, held=1, wanted=1)])
    assert differences([claim(A, held=7), claim(B, held=1, wanted=2)]) == pytest.approx({A: -1.0, B: 1.0})


def test_machines_that_a_job_may_not_use_are_no_debt_to_it() -> None:
    few, others = frozenset({0}), frozenset({1})
    rich = replace(claim(C, held=0), held_in={1: 6}, reach=others)
    pair = [replace(claim(one, held=1), reach=few) for one in (A, B)]
    assert not differences([*pair, rich]), "they have all that they may use"
    uneven = [replace(claim(A, held=2), reach=few), replace(claim(B, held=0), reach=few)]
    assert differences([*uneven, rich]) == pytest.approx({A: -1.0, B: 1.0})
    wide = replace(rich, reach=few | others)
    assert differences([*uneven, wide]) == pytest.approx({A: -1.0, B: 1.0}), "it has more without them"
    same = [replace(one, job=replace(one.job, project_id=A)) for one in (*uneven, rich)]
    assert differences(same) == pytest.approx({A: -1.0, B: 1.0}), "jobs of one project neither"


def test_what_a_job_that_waits_is_owed_stays_owed_while_machines_change_hands() -> None:
    waiting = replace(JOB, state=JobState.QUEUED, project_id=B)
    snapshot = Snapshot(machines=(), jobs=(waiting,))
    arrears = Arrears()
    assert arrears.pass_time(snapshot, {A: 1.0}, 60.0) == {A: 1}
    owed = replace(snapshot, jobs=(replace(waiting, owed=1),))
    assert not arrears.pass_time(owed, {}, 1.0), "at this moment none of the machines has a holder"


def test_jobs_of_unlike_priorities_owe_each_other_nothing() -> None:
    assert not differences([claim(A, held=7, priority=1), claim(B, held=1)])


def test_a_project_lacks_no_more_than_its_quota_allows() -> None:
    limited = claim(B, held=1)
    limited = replace(limited, job=replace(limited.job, project_quota=1))
    assert not differences([claim(A, held=7), limited])


@given(
    st.lists(
        st.tuples(st.integers(0, 6), st.integers(0, 6), st.sampled_from([0.5, 1.0, 3.0]), st.integers(0, 1)),
        max_size=6,
    )
)
def test_nobody_owes_what_no_other_job_lacks(jobs: list[tuple[int, int, float, int]]) -> None:
    claims = [
        claim(UUID(int=number), held=held, wanted=wanted, weight=weight, priority=priority)
        for number, (held, wanted, weight, priority) in enumerate(jobs)
    ]
    differing = differences(claims)
    assert sum(differing.values()) == pytest.approx(0.0, abs=0.02)
    for one in claims:
        lacking = differing.get(one.job.id, 0.0)
        assert lacking <= max(one.wanted - one.held, 0) + 1e-6, "nobody is owed what it could not use"
        assert -lacking <= one.held + 1e-6


def owed_over(seconds: list[float], job: JobView = JOB) -> list[int]:
    """Return what a job is owed after each second in which it lacked so many machines."""
    arrears, owed = Arrears(), []
    for lacking in seconds:
        changed = arrears.pass_time(Snapshot(machines=(), jobs=(job,)), {job.id: lacking}, 1.0)
        job = replace(job, owed=changed.get(job.id, job.owed))
        owed.append(job.owed)
    return owed


def test_a_machine_stays_owed_until_the_job_has_caught_up() -> None:
    assert owed_over([1.0] * 6 + [-1.0] * 7) == [0] * 4 + [1, 1] + [1] * 5 + [0, 0]
    assert owed_over([-1.0] * 5 + [2.0] * 3) == [0] * 4 + [-1] + [-1, -1, 0]


def test_debts_are_bounded_so_that_nobody_pays_for_what_long_passed() -> None:
    owed = owed_over([1.0] * 1000 + [-1.0] * 11)
    assert owed[1000:] == [1] * 9 + [0] * 2


def test_where_hand_overs_are_expensive_machines_change_hands_seldom() -> None:
    slow = replace(JOB, hand_over_s=3.0)
    assert limit_s(JOB) == LEAST_LIMIT_S
    assert owed_over([1.0] * 30, slow) == [0] * 29 + [1]


def test_a_leader_that_begins_goes_on_with_what_is_owed() -> None:
    assert owed_over([-1.0] * 5, replace(JOB, owed=1)) == [1] * 4 + [0]


def test_jobs_that_are_gone_are_forgotten() -> None:
    arrears = Arrears()
    arrears.pass_time(Snapshot(machines=(), jobs=(JOB,)), {A: 4.0}, 1.0)
    arrears.pass_time(Snapshot(machines=(), jobs=()), {}, 1.0)
    assert not arrears.pass_time(Snapshot(machines=(), jobs=(JOB,)), {A: 1.0}, 1.0)


def parts_had(
    machines: dict[str, set[str]], loads: list[Load], cold_start_s: float = 3.0
) -> dict[str, float]:
    """Return the machine time of each job by what it is entitled to, in simulated time."""
    simulation = Simulation(machines, loads, costs=Costs(cold_start_s=cold_start_s)).run(WARM_UP_S)
    simulation.held_s.clear()
    simulation.run(MEASURED_S)
    held_s, weights = simulation.held_s, {one.name: one.project_weight for one in loads}
    all_s, all_weights = sum(held_s.values()), sum(weights.values())
    return {name: held_s[name] / all_s * all_weights / weight for name, weight in weights.items()}


@pytest.mark.parametrize("step_s, turn_s", [(0.3, 0.3), (1.0, 1.0), (0.5, 2.0)])
def test_no_job_keeps_the_only_machine_on_which_nobody_trains(step_s: float, turn_s: float) -> None:
    """Before, the older job had it for ever, and each step of the older interrupted the younger one's batch: in the
    first case, the younger one never finished any."""
    loads = [
        Load(name, 8, 8, (0.5 * turn_s, turn_s, 1.5 * turn_s), step_s, 16, max_lag=3, project=number)
        for number, name in enumerate(["older", "younger"])
    ]
    parts = parts_had({"m0": {"rollout"}, "m1": {"rollout", "train"}}, loads, cold_start_s=0.3)
    assert min(parts.values()) >= 0.95


@pytest.mark.parametrize("weights", [(1.0, 1.0, 1.0), (1.0, 1.0, 2.0), (1.0, 1.0, 3.0)])
def test_projects_have_the_machine_time_that_their_weights_give_them(weights: tuple[float, ...]) -> None:
    """Before, the youngest of three equal jobs on eight machines had 0.75 of its part, and of 1:1:3 one had 0.74."""
    turns_s = (2.0, 4.0, 6.0)
    loads = [
        Load(f"job{n}", 8 + 2 * n, 16, turns_s, 8.0 / (n + 1), max_lag=3, project=n, project_weight=weight)
        for n, weight in enumerate(weights)
    ]
    parts = parts_had({f"m{n}": {"rollout", "train"} for n in range(8)}, loads)
    assert min(parts.values()) >= 0.95
