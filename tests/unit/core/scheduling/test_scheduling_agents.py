"""Agents of several jobs on one machine, several machines for the agents of one job, and agents beside engines."""

from dataclasses import replace
from uuid import UUID

import pytest

from seamlessflow.core.lifecycle.jobs import JobState
from seamlessflow.core.lifecycle.phases import EPISODE_GRACE_S, PhaseState
from seamlessflow.core.scheduling.decisions import AdmitMachine, DrainPhase, Lease, QuarantineMachine
from seamlessflow.core.scheduling.eligibility import lease_rejection
from seamlessflow.core.scheduling.explain.dry_run import dry_run
from seamlessflow.core.scheduling.explain.preview import Impact, preview
from seamlessflow.core.scheduling.explain.queue import Queue, Until
from seamlessflow.core.scheduling.passes.demand import agents_for
from seamlessflow.core.scheduling.scheduler import decide
from seamlessflow.core.scheduling.snapshot import (
    FailureView,
    JobView,
    MachineView,
    PhaseView,
    QuarantineView,
    Snapshot,
)
from seamlessflow.core.types.desired_state import MachineEdit
from seamlessflow.core.types.tags import Role

JOBS = [
    JobView(
        id=UUID(int=n), name=f"job {n}", order=n, state=JobState.QUEUED, groups_per_batch=4, num_updates=10,
        engines_wanted=1,
    )
    for n in range(1, 6)
]  # fmt: skip
ENGINES = [
    MachineView(id=UUID(int=100 + n), name=f"engine{n}", tags=frozenset({"rollout", "train"}))
    for n in range(4)
]


def agent_machine(name: str = "agents", *, slots: int = 4, tags: str = "agent") -> MachineView:
    machine_id = UUID(bytes=name.encode().ljust(16, b"\0"))
    return MachineView(id=machine_id, name=name, tags=frozenset(tags.split()), agent_slots=slots)


def agents(job: JobView, *, state: PhaseState = PhaseState.ACTIVE, number: int = 0) -> PhaseView:
    return PhaseView(
        id=UUID(int=1000 + 10 * job.order + number), job_id=job.id, role=Role.AGENT, state=state, fence=1
    )


def with_agents(machine: MachineView, *phases: PhaseView) -> MachineView:
    for phase in phases:
        machine = machine.with_phase(phase)
    return machine


def at_work(job: JobView, **changes: object) -> JobView:
    return replace(job, **{"state": JobState.RUNNING, "admitted_s": 100.0, **changes})  # type: ignore[arg-type]


def where(snapshot: Snapshot, job: JobView) -> list[str]:
    """Return the machines that run the job's agents."""
    return [machine.name for machine, phase in snapshot.live_phases(job.id) if phase.role is Role.AGENT]


def test_one_machine_runs_the_agents_of_as_many_jobs_as_it_has_slots() -> None:
    snapshot = Snapshot((agent_machine(slots=3), *ENGINES), tuple(JOBS[:4]))
    leased = [d.job_id for d in decide(snapshot).decisions if isinstance(d, Lease) and d.role is Role.AGENT]
    assert leased == [job.id for job in JOBS[:3]], "in one cycle"
    final = dry_run(snapshot)
    assert [where(final.final, job) for job in JOBS[:4]] == [["agents"], ["agents"], ["agents"], []]
    assert [job.state for job in final.final.jobs] == [*[JobState.RUNNING] * 3, JobState.QUEUED]
    assert final.waiting[JOBS[3].id] == (
        "no machine is free for role agent: the 3 slots of agents are for agents of other jobs"
    )


def test_a_machine_of_all_roles_runs_a_whole_job() -> None:
    """Agents run beside the engine, and go on while the machine trains."""
    machine = agent_machine("all", tags="agent rollout train")
    final = dry_run(Snapshot((machine,), (JOBS[0],))).final
    (all_roles,) = final.machines
    assert [phase.role for phase in all_roles.phases] == [Role.ROLLOUT, Role.AGENT]
    (job,) = final.jobs
    assert job.state is JobState.RUNNING
    training = dry_run(replace(final, jobs=(replace(job, num_ready_groups=4),))).final
    assert [phase.role for phase in training.machines[0].phases] == [Role.TRAIN, Role.AGENT]


@pytest.mark.parametrize(
    "wanted, expected", [(1, ["a"]), (2, ["a", "b"]), (3, ["a", "b", "c"]), (9, ["a", "b", "c"])]
)
def test_agents_that_are_the_bottleneck_get_more_machines_but_one_phase_on_each(
    wanted: int, expected: list[str]
) -> None:
    machines = [with_agents(agent_machine("a"), agents(JOBS[0])), agent_machine("b"), agent_machine("c")]
    job = at_work(JOBS[0], agents_wanted=wanted)
    final = dry_run(Snapshot((*machines, *ENGINES), (job,))).final
    assert where(final, job) == expected


def test_more_agents_do_not_help_a_job_that_lacks_engines() -> None:
    machines = (with_agents(agent_machine("a"), agents(JOBS[0])), agent_machine("b"))
    job = at_work(JOBS[0], agents_wanted=2, engines_wanted=9)
    assert where(dry_run(Snapshot((*machines, *ENGINES), (job,))).final, job) == ["a"]


def test_a_slot_beyond_what_a_job_needs_goes_to_one_that_has_none() -> None:
    """Its agents drain with time for their episodes, and those of the other job on the machine stay."""
    first, other, young = at_work(JOBS[0], agents_wanted=2), at_work(JOBS[1]), JOBS[2]
    a = with_agents(agent_machine("a", slots=2), agents(first), agents(other))
    b = with_agents(agent_machine("b", slots=1), agents(first, number=1))
    snapshot = Snapshot((a, b, *ENGINES), (first, other, young))
    (drain,) = [d for d in decide(snapshot).decisions if isinstance(d, DrainPhase)]
    assert (drain.machine, drain.phase_id, drain.grace_s) == (
        "b",
        agents(first, number=1).id,
        EPISODE_GRACE_S,
    )
    final = dry_run(snapshot).final
    assert [where(final, job) for job in (first, other, young)] == [["a"], ["a"], ["b"]]


def test_agents_that_nobody_else_needs_stay_although_fewer_would_do() -> None:
    machines = [with_agents(agent_machine(name), agents(JOBS[0], number=n)) for n, name in enumerate("ab")]
    for changes in ({"agents_kept": 1}, {"agents_kept": 2}):
        job = at_work(JOBS[0], **changes)
        assert where(dry_run(Snapshot((*machines, *ENGINES), (job,))).final, job) == ["a", "b"]


def test_a_drain_or_a_silent_machine_moves_all_its_agents() -> None:
    first, second = at_work(JOBS[0]), at_work(JOBS[1])
    a = with_agents(agent_machine("a"), agents(first), agents(second))
    snapshot = Snapshot((a, agent_machine("b"), *ENGINES), (first, second))
    draining = Snapshot((replace(a, is_draining=True), *snapshot.machines[1:]), snapshot.jobs)
    final = dry_run(draining).final
    assert where(final, first) == where(final, second) == ["b"]
    seen = preview(snapshot, {a.id: MachineEdit(is_draining=True)})
    ends = {
        (one.machine, one.job_id, one.impact, one.successors) for one in seen.phases if one.role is Role.AGENT
    }
    assert ends == {("a", job.id, Impact.DRAINS, ("b",)) for job in (first, second)}


def test_a_cordoned_machine_keeps_its_agents_and_gets_no_others() -> None:
    cordoned = replace(with_agents(agent_machine("a"), agents(JOBS[0])), is_cordoned=True)
    final = dry_run(Snapshot((cordoned, *ENGINES), (at_work(JOBS[0]), JOBS[1]))).final
    assert [where(final, job) for job in JOBS[:2]] == [["a"], []]


def test_after_a_quarantine_the_agents_of_one_job_try_the_machine_out() -> None:
    """Agents that were there before stay, and are no trial."""
    quarantine = QuarantineView(reason="its phases failed", backoff_s=60.0, age_s=30.0)
    before = agents(JOBS[0])
    machine = replace(with_agents(agent_machine(), before), quarantine=quarantine, judged_fence=before.fence)
    jobs = (at_work(JOBS[0]), *JOBS[1:3])
    assert [where(dry_run(Snapshot((machine, *ENGINES), jobs)).final, job) for job in jobs] == [
        ["agents"],
        [],
        [],
    ]
    over = replace(machine, quarantine=replace(quarantine, age_s=61.0))
    final = dry_run(Snapshot((over, *ENGINES), jobs)).final
    assert [where(final, job) for job in jobs] == [["agents"], ["agents"], []]
    trial = over.with_phase(replace(agents(JOBS[1]), fence=before.fence + 1))
    assert "in quarantine" in (lease_rejection(trial, at_work(JOBS[2]), Role.AGENT) or "")


def test_agents_avoid_a_machine_where_they_failed_lately() -> None:
    failed = FailureView(
        machine_id=agent_machine("a").id, job_id=JOBS[0].id, role=Role.AGENT, fence=1, age_s=1.0
    )
    machines = (agent_machine("a"), agent_machine("b"), *ENGINES)
    for shown, expected in ((machines, ["b"]), (machines[:1] + machines[2:], ["a"])):
        final = dry_run(Snapshot(shown, (JOBS[0],), failures=(failed,))).final
        assert where(final, JOBS[0]) == expected


def test_a_retagged_machine_loses_its_agents_and_keeps_its_engine() -> None:
    job = at_work(JOBS[0])
    engine = replace(agents(job), id=UUID(int=7), role=Role.ROLLOUT)
    mixed = with_agents(agent_machine("mixed", tags="rollout train"), engine, agents(job))
    plan = decide(Snapshot((mixed, agent_machine("b")), (job,)))
    assert [(d.phase_id, d.reason) for d in plan.decisions if isinstance(d, DrainPhase)] == [
        (agents(job).id, "mixed lacks the tag agent")
    ]


def test_a_quota_counts_each_agent_phase_as_a_machine() -> None:
    job = at_work(JOBS[0], agents_wanted=3, project_quota=3)
    final = dry_run(Snapshot((*(agent_machine(name) for name in "abc"), *ENGINES), (job,))).final
    assert len(final.live_phases(job.id)) == 3
    other = replace(JOBS[1], project_quota=3)
    assert where(dry_run(Snapshot(final.machines, (job, other))).final, other) == []


def test_the_queue_says_who_has_a_slot_and_until_when() -> None:
    holders = [at_work(JOBS[0]), at_work(JOBS[1], admitted_s=700.0)]
    full = with_agents(agent_machine(slots=2), *(agents(job) for job in holders))
    queue = Queue(Snapshot((full, *ENGINES), (*holders, JOBS[2])))
    (entry,) = [one for one in queue.entries if one.place is not None]
    (shortage,) = queue.shortages(entry)
    assert (shortage.role, shortage.num_fitting) == (Role.AGENT, 1)
    (holder,) = shortage.holders
    assert (holder.machine.name, holder.job, holder.until) == ("agents", holders[1], Until.QUANTUM)
    assert holder.within_s == pytest.approx(200.0)


@pytest.mark.parametrize("num_sessions, expected", [(0, 1), (88, 1), (89, 2), (177, 2), (178, 3)])
def test_a_machine_more_is_wanted_once_no_group_fits_the_others(num_sessions: int, expected: int) -> None:
    assert agents_for(num_sessions, capacity=96 - 8 + 1) == expected


MIXED = agent_machine("mixed", tags="agent rollout train")
OVER = QuarantineView(reason="its phases failed", backoff_s=60.0, age_s=61.0)


def test_a_job_that_fits_only_a_machine_after_its_quarantine_tries_it_out() -> None:
    """Its agents waited for a phase that rolls out, which is leased only beside agents: for ever."""
    machine = replace(MIXED, quarantine=OVER, judged_fence=3)
    final = dry_run(Snapshot((machine,), (JOBS[0],))).final
    assert {phase.role for _, phase in final.live_phases(JOBS[0].id)} == {Role.AGENT, Role.ROLLOUT}


def test_agents_say_nothing_of_a_machine_that_rolls_out() -> None:
    """Agents use no device, so a machine whose device fails would be admitted and fail engines again and again."""
    proven = replace(agents(JOBS[0]), fence=9, age_s=1000.0)
    jobs = tuple(at_work(job) for job in JOBS[:2])
    for machine, is_admitted in ((agent_machine(), True), (MIXED, False)):
        tried = with_agents(replace(machine, quarantine=OVER, judged_fence=3), proven)
        decisions = decide(Snapshot((tried, *ENGINES), jobs)).decisions
        assert any(isinstance(one, AdmitMachine) for one in decisions) == is_admitted
        # Once the agents of one job have proven to work, those of the next one may come.
        assert lease_rejection(tried, jobs[1], Role.AGENT) is None


def test_agents_do_not_excuse_a_machine_that_fails_engines() -> None:
    engines = [
        replace(agents(job), id=UUID(int=500 + job.order), role=Role.ROLLOUT, age_s=1000.0)
        for job in JOBS[:2]
    ]
    works = [with_agents(one, phase) for one, phase in zip(ENGINES, engines, strict=False)]
    proven = replace(agents(JOBS[0]), fence=9, age_s=1000.0)
    failures = tuple(
        FailureView(machine_id=MIXED.id, job_id=job.id, role=Role.ROLLOUT, fence=4 + job.order, age_s=1.0)
        for job in JOBS[:2]
    )
    snapshot = Snapshot(
        (with_agents(MIXED, proven), *works), tuple(at_work(job) for job in JOBS[:2]), failures=failures
    )
    quarantined = [one for one in decide(snapshot).decisions if isinstance(one, QuarantineMachine)]
    assert [one.machine for one in quarantined] == ["mixed"]
