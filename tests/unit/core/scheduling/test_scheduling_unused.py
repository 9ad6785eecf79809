"""A job without sessions and batches leaves its machines at once to one that waits, and none goes back and forth."""

from dataclasses import replace
from uuid import UUID

import pytest

from seamlessflow.core.lifecycle.jobs import JobState
from seamlessflow.core.lifecycle.phases import PhaseState
from seamlessflow.core.scheduling.explain.dry_run import dry_run
from seamlessflow.core.scheduling.passes.unused import UNUSED_AFTER_S, has_no_sessions
from seamlessflow.core.scheduling.scheduler import decide
from seamlessflow.core.scheduling.snapshot import JobView, MachineView, PhaseView, Snapshot
from seamlessflow.core.types.tags import Role

A, B, C = (UUID(int=number) for number in (1, 2, 3))
AT_WORK = JobView(
    id=A, name="a", order=1, state=JobState.RUNNING, num_updates=10, engines_wanted=0, admitted_s=60.0,
    has_external_agents=True,
)  # fmt: skip
UNUSED = replace(AT_WORK, has_no_sessions=True)
WAITING = replace(
    AT_WORK, id=B, name="b", order=2, state=JobState.QUEUED, admitted_s=0.0, waiting_s=10.0, engines_wanted=1
)


def fleet(*jobs: JobView) -> Snapshot:
    """One machine, where job A has its engine."""
    phase = PhaseView(
        id=UUID(int=9), job_id=A, role=Role.ROLLOUT, state=PhaseState.ACTIVE, fence=1, age_s=60.0
    )
    tags = frozenset({"rollout", "train"})
    return Snapshot(machines=(MachineView(id=UUID(int=8), name="m", tags=tags, phase=phase),), jobs=jobs)


def holder_after(*jobs: JobView) -> UUID | None:
    """Return the job that has the machine once nothing more is decided."""
    (machine,) = dry_run(fleet(*jobs)).final.machines
    return None if machine.phase is None else machine.phase.job_id


def test_an_unused_job_gives_way_at_once_and_says_why() -> None:
    assert holder_after(UNUSED, WAITING) == B
    assert "no open session" in decide(fleet(UNUSED, WAITING)).waiting_reasons[A]


@pytest.mark.parametrize(
    "at_work",
    [
        AT_WORK,
        replace(UNUSED, num_unpublished_batches=1),
        replace(UNUSED, num_ready_groups=1),
        replace(UNUSED, awaits_evaluation=True),
    ],
)
def test_a_job_with_a_session_or_something_to_train_keeps_its_quantum(at_work: JobView) -> None:
    assert holder_after(at_work, WAITING) == A


def test_unused_jobs_do_not_push_each_other_out() -> None:
    assert holder_after(UNUSED, replace(WAITING, has_no_sessions=True)) == A
    assert holder_after(UNUSED) == A


def test_a_job_that_waits_with_sessions_goes_before_one_that_has_waited_longer_without() -> None:
    idle = replace(WAITING, id=C, name="c", order=3, waiting_s=500.0, has_no_sessions=True)
    assert holder_after(UNUSED, idle, WAITING) == B


def test_a_job_that_gave_way_waits_for_a_whole_quantum_once_it_has_a_session() -> None:
    back = replace(AT_WORK, id=B, order=2, state=JobState.QUEUED, admitted_s=0.0, waiting_s=1.0)
    assert holder_after(AT_WORK, back) == A


def test_a_job_of_another_priority_is_no_exception() -> None:
    assert holder_after(replace(UNUSED, priority=1), WAITING) == A
    assert holder_after(UNUSED, replace(WAITING, priority=1)) == B


@pytest.mark.parametrize(
    "closed_s,at_work_s,published_s,expected",
    [
        (None, 60.0, 60.0, False),  # a session is open
        (UNUSED_AFTER_S / 2, 60.0, 60.0, False),  # the next one may follow
        (60.0, UNUSED_AFTER_S / 2, 60.0, False),
        (60.0, 60.0, UNUSED_AFTER_S / 2, False),
        (60.0, 60.0, float("inf"), True),
        (float("inf"), 60.0, float("inf"), True),  # there has never been one
    ],
)
def test_a_short_pause_between_sessions_changes_nothing(
    closed_s: float | None, at_work_s: float, published_s: float, expected: bool
) -> None:
    assert has_no_sessions(closed_s, at_work_s=at_work_s, published_s=published_s) is expected
