"""Which machines roll out much slower than the others of their job, and what follows."""

from collections.abc import Mapping
from dataclasses import replace
from uuid import UUID

import pytest

from seamlessflow.core.lifecycle.jobs import DesiredJobState, JobState
from seamlessflow.core.lifecycle.phases import PhaseState
from seamlessflow.core.scheduling.blame.judging import QUARANTINE_S, TRIED_S, judge
from seamlessflow.core.scheduling.blame.stragglers import FULL_S, WARM_UP_S, with_paces
from seamlessflow.core.scheduling.decisions import AdmitMachine, DrainPhase, QuarantineMachine
from seamlessflow.core.scheduling.quiet import Quiet, quiet_s
from seamlessflow.core.scheduling.scheduler import decide
from seamlessflow.core.scheduling.snapshot import (
    FailureView,
    JobView,
    MachineView,
    PhaseView,
    QuarantineView,
    Snapshot,
)
from seamlessflow.core.types.tags import Role
from tests.fixtures.fleet_simulation import Faults, Load, Simulation

JOB = JobView(
    id=UUID(int=1), order=0, state=JobState.RUNNING, has_external_agents=True, engines_wanted=9, num_updates=100
)  # fmt: skip
RATES = {"a": 30.0, "b": 100.0, "c": 90.0, "d": 110.0, "e": 100.0}


def machine(name: str, *, tags: str = "rollout train", job: JobView = JOB, **changes: object) -> MachineView:
    number = ord(name)
    phase = PhaseView(
        id=UUID(int=1000 + number), job_id=job.id, role=Role.ROLLOUT, state=PhaseState.ACTIVE,
        fence=number, age_s=WARM_UP_S + 1.0,
    )  # fmt: skip
    phase = replace(phase, **changes)  # type: ignore[arg-type]
    return MachineView(id=UUID(int=number), name=name, tags=frozenset(tags.split()), phase=phase)


def measured(
    machines: list[MachineView], rates: Mapping[str, float] = RATES, full_s: float = 2 * FULL_S
) -> tuple[MachineView, ...]:
    sampled = {
        one.phase.id: (rates[one.name] * full_s, full_s)
        for one in machines
        if one.phase and one.name in rates
    }
    return with_paces(machines, sampled)


def slow(machines: tuple[MachineView, ...]) -> list[str]:
    return [one.name for one in machines if one.phase and one.phase.pace and one.phase.pace.is_slow]


def quarantined(snapshot: Snapshot) -> list[QuarantineMachine]:
    return [one for one in decide(snapshot).decisions if isinstance(one, QuarantineMachine)]


def drained(snapshot: Snapshot) -> dict[str, str]:
    return {one.machine: one.reason for one in decide(snapshot).decisions if isinstance(one, DrainPhase)}


def test_a_machine_at_half_of_the_median_of_the_others_is_slow() -> None:
    machines = measured([machine(name) for name in RATES])
    assert slow(machines) == ["a"]
    assert machines[0].phase is not None
    assert machines[0].phase.pace is not None
    assert machines[0].phase.pace.share == pytest.approx(0.3)
    for rate, expected in ((50.0, ["a"]), (50.1, [])):
        assert slow(measured([machine(name) for name in RATES], RATES | {"a": rate})) == expected


def test_unlike_lengths_make_nobody_slow() -> None:
    """Longer turns sample as fast while the engine is full; the seconds in which it is full differ."""
    machines = [machine(name) for name in "abcd"]
    sampled = {
        one.phase.id: (100.0 * full_s, full_s)
        for one, full_s in zip(machines, (61.0, 100.0, 119.0, 80.0), strict=True)
        if one.phase
    }
    assert slow(with_paces(machines, sampled)) == []


def test_an_engine_that_was_hardly_full_has_no_pace_and_is_nobodys_measure() -> None:
    """The tail of a batch: an engine that drains samples few tokens, and says nothing."""
    machines = [machine(name) for name in "abcd"]
    sampled = {one.phase.id: (100.0 * 90.0, 90.0) for one in machines[1:] if one.phase}
    assert slow(with_paces(machines, sampled | {UUID(int=1000 + ord("a")): (1.0, FULL_S - 0.1)})) == []
    assert slow(with_paces(machines, sampled | {UUID(int=1000 + ord("a")): (1.0, FULL_S)})) == ["a"]
    few = {phase: (num, FULL_S - 0.1) for phase, (num, _) in sampled.items()}
    assert slow(with_paces(machines, few | {UUID(int=1000 + ord("a")): (1.0, FULL_S)})) == []


@pytest.mark.parametrize(
    "changes", [{"age_s": WARM_UP_S}, {"state": PhaseState.DRAINING}, {"role": Role.TRAIN}]
)
def test_only_an_engine_that_is_past_its_start_is_measured(changes: dict[str, object]) -> None:
    others = [machine(name) for name in "bcd"]
    assert slow(measured([machine("a"), *others])) == ["a"]
    first = machine("a")
    assert first.phase is not None
    phase = replace(first.phase, **changes)  # type: ignore[arg-type]
    assert slow(measured([replace(first, phase=phase), *others])) == []


def test_three_machines_tell_nobody_apart() -> None:
    assert slow(measured([machine(name) for name in "abc"])) == []


def test_only_like_machines_of_one_job_are_compared() -> None:
    others = [machine(name) for name in "bcd"]
    other = replace(JOB, id=UUID(int=2))
    assert slow(measured([machine("a", tags="rollout train old-gpu"), *others])) == []
    assert slow(measured([machine("a", job=other), *others])) == []
    assert slow(measured([replace(machine("a"), pool="old"), *others])) == []


def test_a_slow_machine_is_quarantined_and_its_engine_drained() -> None:
    snapshot = Snapshot(measured([machine(name) for name in RATES]), (JOB,))
    reason = "it rolls out at 0.30 of the rate of the 4 other machines of the same job"
    (decision,) = quarantined(snapshot)
    assert (decision.machine, decision.reason, decision.num) == ("a", reason, 1)
    assert (decision.backoff_s, decision.fence, decision.is_slow) == (QUARANTINE_S, ord("a"), True)
    assert drained(snapshot) == {"a": f"its machine is in quarantine: {reason}"}
    # The engine is drained in a later cycle too, if this one could write the quarantine only.
    (first, *others) = snapshot.machines
    judged = QuarantineView(reason=reason, backoff_s=QUARANTINE_S, is_slow=True)
    later = Snapshot((replace(first, quarantine=judged, judged_fence=ord("a")), *others), (JOB,))
    assert not quarantined(later)
    assert drained(later) == {"a": f"its machine is in quarantine: {reason}"}
    # A person released it: the engine goes on, and is not judged again.
    released = Snapshot((replace(first, judged_fence=ord("a")), *others), (JOB,))
    assert not quarantined(released)
    assert not drained(released)


def test_never_two_machines_in_one_cycle_and_the_slowest_first() -> None:
    rates = {"a": 30.0, "b": 10.0} | dict.fromkeys("cdefg", 100.0)
    snapshot = Snapshot(measured([machine(name) for name in rates], rates), (JOB,))
    assert [one.machine for one in quarantined(snapshot)] == ["b"]
    failures = tuple(
        FailureView(machine_id=UUID(int=ord("g")), job_id=JOB.id, role=Role.ROLLOUT, fence=200 + n, age_s=1.0)
        for n in range(2)
    )
    assert [one.machine for one in quarantined(replace(snapshot, failures=failures))] == ["g"]


def test_no_floor_is_broken_for_a_slow_machine() -> None:
    """Five machines train together, so a job that trains on five goes on with a slow one."""
    machines = measured([machine(name) for name in RATES])
    gang = replace(JOB, num_train_machines=5)
    assert not quarantined(Snapshot(machines, (gang,)))
    assert not drained(Snapshot(machines, (gang,)))
    assert quarantined(Snapshot(machines, (replace(gang, num_train_machines=4),)))
    # Nor that of another job.
    only_there = (replace(machines[0], tags=machines[0].tags | {"special"}), *machines[1:])
    other = replace(JOB, id=UUID(int=2), order=1, train_tags=frozenset({"special"}))
    assert not quarantined(Snapshot(only_there, (JOB, other)))


@pytest.mark.parametrize("changes", [{"desired": DesiredJobState.PAUSE}, {"desired": DesiredJobState.CANCEL}])
def test_a_job_that_stops_judges_nobody(changes: dict[str, object]) -> None:
    job = replace(JOB, **changes)  # type: ignore[arg-type]
    assert not quarantined(Snapshot(measured([machine(name) for name in RATES]), (job,)))


def on_trial(rate: float | None, *, age_s: float = 100.0, fence: int = 200) -> Snapshot:
    """Return a fleet where one machine is tried out after two quarantines for being slow."""
    rates = {name: value for name, value in (RATES | {"a": rate}).items() if value is not None}
    judged = QuarantineView(reason="slow", num=2, backoff_s=60.0, age_s=age_s, is_slow=True)
    first = replace(machine("a", fence=fence), quarantine=judged, judged_fence=150)
    return Snapshot(measured([first, *(machine(name) for name in "bcde")], rates), (JOB,))


def admitted(snapshot: Snapshot) -> list[str]:
    return [one.reason for one in decide(snapshot).decisions if isinstance(one, AdmitMachine)]


def test_the_pace_of_the_trial_decides_again() -> None:
    (again,) = quarantined(on_trial(20.0))
    assert (again.num, again.backoff_s, again.fence, again.is_slow) == (3, 4 * QUARANTINE_S, 200, True)
    assert admitted(on_trial(90.0)) == ["no phase is slow on it any more"]
    unknown = on_trial(None)  # an engine that has run for 30 s would clear a machine that failed
    assert not quarantined(unknown)
    assert not admitted(unknown)
    assert not drained(unknown)


def test_a_machine_whose_pace_nobody_can_tell_is_admitted_after_a_while() -> None:
    assert not admitted(on_trial(None, age_s=60.0 + TRIED_S))
    assert admitted(on_trial(None, age_s=60.0 + TRIED_S + 0.1)) == ["no phase is slow on it any more"]
    assert len(quarantined(on_trial(20.0, age_s=60.0 + TRIED_S + 0.1))) == 1


def test_a_slow_machine_whose_trial_fails_still_has_to_show_its_pace() -> None:
    failure = FailureView(
        machine_id=UUID(int=ord("a")), job_id=JOB.id, role=Role.ROLLOUT, fence=201, age_s=1.0
    )
    (decision,) = quarantined(replace(on_trial(None), failures=(failure,)))
    assert (decision.num, decision.is_slow) == (3, True)


def test_a_pace_that_becomes_slow_ends_the_rest_of_the_scheduler() -> None:
    machines = [machine(name) for name in RATES]
    quiet = Quiet(Snapshot(measured(machines, RATES | {"a": 80.0}), (JOB,)), until_s=100.0)
    assert quiet.covers(Snapshot(measured(machines, RATES | {"a": 75.0}), (JOB,)), 0.0)
    assert not quiet.covers(Snapshot(measured(machines), (JOB,)), 0.0)
    assert quiet_s(on_trial(None, age_s=100.0)) <= 60.0 + TRIED_S - 100.0


def test_what_is_judged_leaves_the_plan_at_once() -> None:
    judged = judge(Snapshot(measured([machine(name) for name in RATES]), (JOB,)))
    first = judged.snapshot.machines[0]
    assert first.phase is not None
    assert first.phase.is_leaving
    assert first.phase.age_s == 0.0, "it has just begun to drain"


def test_a_slow_machine_of_eight_is_found_in_simulated_time_and_tried_until_it_is_mended() -> None:
    mended_at_s = 230.0
    load = Load("a", 16, 8, (4.0, 8.0), 2.0, num_slots=8, max_lag=8)
    tags = {"rollout"}
    machines = {f"m{number}": tags for number in range(8)} | {"trainer": {"train"}}
    simulation = Simulation(machines, [load], faults=Faults(slow={"m0": (0.25, 0.0, mended_at_s)})).run(
        mended_at_s + 170.0
    )
    quarantines = [one for one in simulation.judgements if isinstance(one, QuarantineMachine)]
    assert {one.machine for one in quarantines} == {"m0"}
    assert [one.num for one in quarantines] == list(range(1, len(quarantines) + 1))
    assert len(quarantines) >= 2
    assert isinstance(simulation.judgements[-1], AdmitMachine)
    assert simulation.machines["m0"].quarantine is None
    assert simulation.failures == []
