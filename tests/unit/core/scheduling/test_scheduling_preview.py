"""Dry runs of edits: they follow the scheduler's decisions, they terminate, and they read well."""

from collections.abc import Mapping
from dataclasses import replace
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from seamlessflow.core.algorithms.staleness_bound import StalenessBound
from seamlessflow.core.lifecycle.jobs import JobState
from seamlessflow.core.lifecycle.phases import PhaseState
from seamlessflow.core.scheduling.decisions import DrainPhase, FailPhase
from seamlessflow.core.scheduling.explain.dry_run import dry_run
from seamlessflow.core.scheduling.explain.edits import snapshot_edited
from seamlessflow.core.scheduling.explain.preview import Impact, Preview, _with_demand, preview
from seamlessflow.core.scheduling.explain.preview_text import job_sentence, phase_sentence
from seamlessflow.core.scheduling.scheduler import decide
from seamlessflow.core.scheduling.snapshot import JobView, MachineView, PhaseView, Snapshot
from seamlessflow.core.types.desired_state import MachineEdit
from seamlessflow.core.types.tags import Role
from tests.fixtures.snapshots import machine_edits, snapshots

JOB = UUID(int=1)


@given(snapshots(), machine_edits())
def test_a_dry_run_begins_with_exactly_the_plan_of_the_edited_snapshot(
    snapshot: Snapshot, edits: Mapping[UUID, MachineEdit]
) -> None:
    assert preview(snapshot, edits).first == decide(snapshot_edited(snapshot, edits))


@given(snapshots(), machine_edits())
def test_a_dry_run_names_the_impact_on_each_phase_that_the_edit_ends(
    snapshot: Snapshot, edits: Mapping[UUID, MachineEdit]
) -> None:
    """In the quiescent state, because machines change roles without an edit. Phases that have no
    place in this state are named as well."""
    final = dry_run(_with_demand(snapshot, is_due=False)).final
    made = preview(final, edits)

    ended = {
        d.phase_id
        for d in decide(snapshot_edited(final, edits)).decisions
        if isinstance(d, DrainPhase | FailPhase)
    }
    impacts = {
        impact.live.id: impact for impact in made.phases if impact.live is not None and not impact.is_turn
    }
    for phase_id in ended - {
        d.phase_id for d in dry_run(final).decisions if isinstance(d, DrainPhase | FailPhase)
    }:
        assert impacts[phase_id].impact is not Impact.STAYS
        assert impacts[phase_id].reason
    told = {impact.machine_id for impact in preview(snapshot, edits).phases}
    jobs = {job.id for job in snapshot.jobs}
    for machine in snapshot.machines:
        if machine.id in edits and machine.phase is not None and machine.phase.job_id in jobs:
            assert machine.id in told, "what lives on an edited machine is always told of"


@given(snapshots())
def test_every_snapshot_becomes_stable_without_breaking_a_tag(snapshot: Snapshot) -> None:
    run = dry_run(snapshot)

    jobs = {job.id: job for job in run.final.jobs}
    for decision in decide(run.final).decisions:
        # What remains concerns machines that are not heard from.
        assert isinstance(decision, DrainPhase | FailPhase)
    for machine in run.final.machines:
        phase = machine.phase
        if phase is not None and machine.is_healthy and phase.job_id in jobs:
            assert jobs[phase.job_id].tags_of(phase.role) <= machine.tags
            assert not machine.is_draining


@given(snapshots(), st.just({}))
def test_no_edit_changes_nothing(snapshot: Snapshot, edits: Mapping[UUID, MachineEdit]) -> None:
    made = preview(snapshot, edits)
    assert made.phases == ()
    assert not any(impact.is_changed for impact in made.jobs)


def machine(name: str, *tags: str, role: Role | None = None) -> MachineView:
    machine_id = UUID(bytes=name.encode().ljust(16, b"\0"))
    phase = None
    if role is not None:
        phase = PhaseView(
            id=UUID(int=machine_id.int + 1), job_id=JOB, role=role, state=PhaseState.ACTIVE, fence=1
        )
    bare = MachineView(id=machine_id, name=name, tags=frozenset(tags))
    return bare if phase is None else bare.with_phase(phase)


RUNNING = JobView(id=JOB, order=1, state=JobState.RUNNING, groups_per_batch=4, num_updates=10)
AT_WORK = (
    machine("alpha", "rollout", "train", role=Role.ROLLOUT),
    machine("beta", "rollout", role=Role.ROLLOUT),
    machine("gamma", "agent", role=Role.AGENT),
)


def told(*edits: tuple[str, MachineEdit], machines: tuple[MachineView, ...] = AT_WORK) -> list[str]:
    """Return what a dry run says."""
    ids = {machine.name: machine.id for machine in machines}
    made: Preview = preview(
        Snapshot(machines=machines, jobs=(RUNNING,)), {ids[name]: edit for name, edit in edits}
    )
    said = [phase_sentence(impact, job="calc") for impact in made.phases]
    return said + [job_sentence(impact, job="calc") for impact in made.jobs]


def test_a_rollout_machine_that_is_lost_hands_its_requests_to_the_others() -> None:
    assert told(("beta", MachineEdit(is_draining=True))) == [
        (
            "beta: the rollout phase of calc drains, because beta is being drained; its requests are handed over to "
            "alpha and continue from their own tokens."
        ),
        "calc rolls out on alpha instead of alpha and beta.",
    ]


def test_requests_of_the_last_rollout_machine_are_held() -> None:
    said = told(("alpha", MachineEdit(tags=["train"])), ("beta", MachineEdit(tags=[])))
    assert "its requests are held until a machine rolls out for the job again" in said[0]
    assert "waits: no machine has the tags for role rollout: rollout" in said[-1]


def test_a_trainer_that_is_lost_ends_after_its_step_and_another_continues() -> None:
    training = (machine("alpha", "rollout", "train", role=Role.TRAIN), *AT_WORK[1:])
    said = told(
        ("alpha", MachineEdit(tags=["rollout"])),
        ("beta", MachineEdit(tags=["rollout", "train"])),
        machines=training,
    )
    assert said == [
        "alpha: the rollout phase of calc continues unchanged.",
        (
            "alpha: its turns to train calc end, because alpha lacks the tag train; a step in progress finishes and "
            "is published; batches not yet started go to beta."
        ),
        "beta: the rollout phase of calc continues unchanged.",
        "calc trains on beta instead of alpha.",
    ]


def test_a_dedicated_trainer_that_is_lost_ends_after_its_step() -> None:
    dedicated = (machine("delta", "train", role=Role.TRAIN), *AT_WORK)
    assert told(("delta", MachineEdit(is_draining=True)), machines=dedicated) == [
        (
            "delta: the train phase of calc drains, because delta is being drained; a step in progress finishes and "
            "is published; batches not yet started go to alpha."
        ),
        "calc trains on alpha instead of delta.",
    ]


MOMENTS = [
    (Role.ROLLOUT, PhaseState.ACTIVE, 0),
    (Role.ROLLOUT, PhaseState.ACTIVE, 3),
    (Role.ROLLOUT, PhaseState.ACTIVE, 4),
    (Role.ROLLOUT, PhaseState.DRAINING, 4),
    (Role.TRAIN, PhaseState.LEASED, 4),
    (Role.TRAIN, PhaseState.STARTING, 4),
    (Role.TRAIN, PhaseState.ACTIVE, 4),
    (Role.TRAIN, PhaseState.ACTIVE, 0),
    (Role.TRAIN, PhaseState.DRAINING, 0),
    (Role.ROLLOUT, PhaseState.LEASED, 0),
    (Role.ROLLOUT, PhaseState.STARTING, 1),
]


@pytest.mark.parametrize(
    "name,edit",
    [
        ("alpha", MachineEdit(tags=["rollout"])),
        ("alpha", MachineEdit(tags=["train"])),
        ("alpha", MachineEdit(tags=[])),
        ("alpha", MachineEdit(is_cordoned=True)),
        ("alpha", MachineEdit(is_draining=True)),
        ("beta", MachineEdit(tags=["rollout", "train"])),
        ("beta", MachineEdit(is_draining=True)),
        ("gamma", MachineEdit(is_draining=True)),
    ],
)
def test_a_dry_run_gives_the_same_answer_at_every_moment_of_a_cycle(name: str, edit: MachineEdit) -> None:
    """alpha rolls out and trains in turns; groups become ready, and phases start, change roles and
    drain."""
    answers = set()
    for role, state, num_ready in MOMENTS:
        for age_s in (0.0, 20.0):
            alpha = machine("alpha", "rollout", "train", role=role)
            assert alpha.phase is not None
            alpha = replace(alpha, phase=replace(alpha.phase, state=state, age_s=age_s))
            job = replace(
                RUNNING,
                num_ready_groups=num_ready,
                num_open_groups=8 - num_ready,
                staleness_bound=StalenessBound(1),
            )
            made = preview(Snapshot(machines=(alpha, *AT_WORK[1:]), jobs=(job,)), {machine(name).id: edit})
            said = [phase_sentence(impact, job="calc") for impact in made.phases]
            answers.add((*said, *(job_sentence(impact, job="calc") for impact in made.jobs)))

    assert len(answers) == 1, answers


def test_a_cordon_lets_running_phases_continue() -> None:
    assert told(("beta", MachineEdit(is_cordoned=True))) == [
        "beta: the rollout phase of calc continues unchanged.",
        "calc continues as before.",
    ]


def test_a_silent_machine_is_given_up_with_or_without_the_edit() -> None:
    silent = (*AT_WORK[:1], replace(AT_WORK[1], is_healthy=False, unheard_s=20.0), AT_WORK[2])
    said = told(("beta", MachineEdit(tags=[])), machines=silent)
    assert said[0] == "beta: the rollout phase of calc is given up, because beta sends no heartbeats."
