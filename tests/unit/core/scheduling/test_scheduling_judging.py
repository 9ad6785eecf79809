"""Who is to blame for failed phases: a machine, a job, or nobody. The scenarios run in simulated time."""

from dataclasses import replace
from math import inf
from uuid import UUID

import pytest

from seamlessflow.core.lifecycle.jobs import DesiredJobState, JobState
from seamlessflow.core.lifecycle.phases import PhaseState
from seamlessflow.core.scheduling.blame.judging import QUARANTINE_S
from seamlessflow.core.scheduling.decisions import AdmitMachine, PauseJob, QuarantineMachine
from seamlessflow.core.scheduling.evidence import LONGEST_S
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

NUM_MACHINES = 8
ALWAYS = (0.0, inf)
WARM_UP_S, MEASURED_S = 20.0, 100.0


def fleet(num: int = NUM_MACHINES) -> dict[str, set[str]]:
    return {f"m{number}": {"rollout", "train"} for number in range(num)}


def load(name: str, *, starts_at_s: float = 0.0) -> Load:
    return Load(name, 16, 8, (4.0,), 2.0, num_slots=8, max_lag=2, starts_at_s=starts_at_s)


def rate(simulation: Simulation, *names: str) -> float:
    """Return how many updates the jobs publish in a second, once they are under way."""
    before = sum(simulation.job(name).view.published_batch for name in names)
    simulation.run(MEASURED_S)
    return (sum(simulation.job(name).view.published_batch for name in names) - before) / MEASURED_S


@pytest.mark.parametrize("num_jobs", [1, 3])
def test_fault_4_one_bad_machine_is_quarantined_and_kills_no_job(num_jobs: int) -> None:
    """Its failures were the jobs', and the same first name was picked again until the jobs had failed for good."""
    names = [f"job {n}" for n in range(num_jobs)]
    loads = [load(name) for name in names]
    failing = Simulation(fleet(), loads, faults=Faults(machines={"m0": ALWAYS})).run(WARM_UP_S)
    share = rate(failing, *names) / rate(Simulation(fleet(NUM_MACHINES - 1), loads).run(WARM_UP_S), *names)

    first = failing.judgements[0]
    assert isinstance(first, QuarantineMachine)
    assert first.machine == "m0"
    judged = [failure for failure in failing.failures if failure.fence <= first.fence]
    assert len(judged) <= 3
    assert share >= 0.9
    assert {job.view.state for job in failing.jobs.values()} == {JobState.RUNNING}
    assert {one.machine for one in failing.judgements if isinstance(one, QuarantineMachine)} == {"m0"}


def test_fault_4_each_failed_trial_doubles_the_quarantine_and_a_good_one_ends_it() -> None:
    mended_at_s = 100.0
    simulation = Simulation(fleet(), [load("a")], faults=Faults(machines={"m0": (0.0, mended_at_s)}))
    simulation.run(mended_at_s + 150.0)

    quarantines = [one for one in simulation.judgements if isinstance(one, QuarantineMachine)]
    assert len(quarantines) >= 2
    assert [one.backoff_s for one in quarantines] == [
        min(QUARANTINE_S * 2**n, LONGEST_S) for n in range(len(quarantines))
    ]
    assert [one.num for one in quarantines] == list(range(1, len(quarantines) + 1))
    assert isinstance(simulation.judgements[-1], AdmitMachine)
    assert simulation.machines["m0"].quarantine is None
    # After the first quarantine, one phase for each trial.
    judged = [failure for failure in simulation.failures if failure.fence > quarantines[0].fence]
    assert len(judged) == len(quarantines) - 1


@pytest.mark.parametrize("after_s", [2.0, 6.0])
def test_fault_4_a_job_that_fails_everywhere_pauses_and_leaves_its_neighbours_alone(after_s: float) -> None:
    poison = load("poison", starts_at_s=WARM_UP_S)
    faults = Faults(jobs=frozenset({"poison"}), after_s=after_s)
    beside = Simulation(fleet(), [load("a"), load("b"), poison], faults=faults).run(WARM_UP_S)
    alone = Simulation(fleet(), [load("a"), load("b")]).run(WARM_UP_S)
    share = rate(beside, "a", "b") / rate(alone, "a", "b")

    job = beside.job("poison").view
    assert (job.desired, job.state) == (DesiredJobState.PAUSE, JobState.PAUSED)
    assert "failed on m" in job.pause_reason
    assert job.pause_reason.endswith("last failure: it broke")
    assert len({failure.machine_id for failure in beside.failures}) <= 4
    assert not [one for one in beside.judgements if isinstance(one, QuarantineMachine)]
    assert share >= 0.9


def test_fault_4_a_rack_that_is_lost_costs_no_job_its_life() -> None:
    """Eleven machines lost at once were eleven failures of their jobs, which ended them."""
    lost = {f"m{number}": (40.0, 150.0) for number in range(11)}
    names = ("a", "b", "c")
    simulation = Simulation(fleet(30), [load(name) for name in names], faults=Faults(lost=lost)).run(60.0)
    held = {name for name, machine in simulation.machines.items() if machine.phase is not None}
    assert not held & lost.keys()
    before = {name: simulation.job(name).view.published_batch for name in names}
    simulation.run(60.0)

    assert simulation.judgements == []
    assert simulation.failures == []
    for name in names:
        view = simulation.job(name).view
        assert view.state is JobState.RUNNING
        assert view.published_batch > before[name]
    simulation.run(60.0)
    assert all(machine.phase is not None for machine in simulation.machines.values())


def poisoned(num_machines: int, seconds: float) -> Simulation:
    loads = [load(name) for name in ("p1", "p2", "p3", "good")]
    return Simulation(fleet(num_machines), loads, faults=Faults(jobs=frozenset({"p1", "p2", "p3"}))).run(
        seconds
    )


def test_the_only_machine_is_not_quarantined_for_jobs_that_cannot_work_elsewhere() -> None:
    """Three failing jobs would stop the whole fleet for up to half an hour each time."""
    simulation = poisoned(1, 120.0)
    assert not [one for one in simulation.judgements if isinstance(one, QuarantineMachine)]
    assert len({failure.job_id for failure in simulation.failures}) == 3


def failed_on_one_machine(*projects: int) -> Snapshot:
    """Jobs of these projects failed on m0, and nowhere else."""
    machines = tuple(
        MachineView(id=UUID(int=1000 + n), name=f"m{n}", tags=frozenset({"rollout", "train"})) for n in (0, 1)
    )
    jobs = tuple(
        JobView(
            id=UUID(int=1 + n), order=n, state=JobState.RUNNING, has_external_agents=True,
            project_id=UUID(int=100 + project),
        )
        for n, project in enumerate(projects)
    )  # fmt: skip
    failures = tuple(
        FailureView(
            machine_id=UUID(int=1000), job_id=job.id, role=Role.ROLLOUT, fence=1 + job.order, age_s=5.0
        )
        for job in jobs
    )
    return Snapshot(machines, jobs, failures=failures)


def test_the_broken_models_of_one_project_do_not_condemn_a_machine() -> None:
    def quarantined(*projects: int) -> bool:
        plan = decide(failed_on_one_machine(*projects))
        return any(isinstance(one, QuarantineMachine) for one in plan.decisions)

    assert not quarantined(1, 1, 1, 1), "the failures of a project count once"
    assert not quarantined(1, 1, 2)
    assert quarantined(1, 2, 3)


def test_jobs_of_one_project_condemn_a_machine_if_they_are_up_elsewhere() -> None:
    """In an installation with one project, a bad machine failed seven phases before it was found."""

    def quarantined(num_up: int, *, state: PhaseState = PhaseState.ACTIVE, fails_too: bool = False) -> bool:
        snapshot = failed_on_one_machine(1, 1, 1)
        engines = [
            MachineView(
                id=UUID(int=2000 + n), name=f"up{n}", tags=frozenset({"rollout", "train"})
            ).with_phase(
                PhaseView(
                    id=UUID(int=3000 + n), job_id=job.id, role=Role.ROLLOUT, state=state, fence=9, age_s=1.0
                )
            )
            for n, job in enumerate(snapshot.jobs[:num_up])
        ]
        elsewhere = [replace(one, machine_id=UUID(int=1001)) for one in snapshot.failures if fails_too]
        snapshot = replace(
            snapshot,
            machines=(*snapshot.machines, *engines),
            failures=(*snapshot.failures, *elsewhere),
        )
        plan = decide(snapshot)
        return any(isinstance(one, QuarantineMachine) for one in plan.decisions)

    assert quarantined(3)
    assert quarantined(2), "two that are up elsewhere, and one that may be broken"
    assert not quarantined(1)
    assert not quarantined(3, state=PhaseState.STARTING)
    assert not quarantined(3, fails_too=True), "who fails everywhere says nothing of a machine"


def test_jobs_that_rest_do_not_keep_others_from_the_only_machine() -> None:
    """Each of three failing jobs held the machine for the 150 s of its tries, while it lay idle."""
    simulation = poisoned(1, 120.0)
    assert simulation.job("good").view.published_batch > 0


def test_a_job_pauses_after_six_tries_whoever_is_to_blame() -> None:
    """On machines that are judged for its failures, it tried for ever, and nobody was told."""
    failures = [
        FailureView(
            machine_id=UUID(int=1000), job_id=UUID(int=1), role=Role.ROLLOUT, fence=n, age_s=900.0 - n
        )
        for n in range(1, 7)
    ]
    quarantined = MachineView(
        id=UUID(int=1000), name="m0", tags=frozenset({"rollout", "train"}), judged_fence=6,
        quarantine=QuarantineView(reason="it failed", num=5, backoff_s=480.0),
    )  # fmt: skip
    job = JobView(id=UUID(int=1), order=0, state=JobState.RUNNING, has_external_agents=True)
    for num, is_paused in ((5, False), (6, True)):
        snapshot = Snapshot((quarantined,), (job,), failures=tuple(failures[:num]))
        pauses = [one for one in decide(snapshot).decisions if isinstance(one, PauseJob)]
        assert bool(pauses) == is_paused
    assert pauses[0].reason == "its rollout phase failed 6 times without doing any work"
