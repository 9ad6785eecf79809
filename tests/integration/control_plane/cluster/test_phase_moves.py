"""A move of a phase, its event and its notifications are one statement; of two moves, the second sees the first."""

from concurrent.futures import ThreadPoolExecutor

import psycopg
import pytest
from django.db import connection, connections, transaction
from django.test.utils import CaptureQueriesContext

from seamlessflow.control_plane.cluster.services.phases import phase_move
from seamlessflow.control_plane.common.database.availability import connection_arguments
from seamlessflow.control_plane.common.models import Event
from seamlessflow.control_plane.scheduling.models import Phase
from seamlessflow.core.lifecycle.phases import PHASE_MOVES, PhaseState
from seamlessflow.core.types.tags import Role
from tests.fixtures.control_plane import Cast, phase_make, worker_make
from tests.fixtures.processes import until


def test_a_move_is_one_statement_that_leaves_one_event(cast: Cast) -> None:
    job, beta = cast.job(is_running=True), worker_make("beta", "rollout")
    phase = phase_make(job, beta.machine, Role.ROLLOUT)
    told = {
        "next_role": "train",
        "next_num_batches": 2,
        "next_reason": "it's due; 100%",
        "drain_grace_s": 2.5,
    }

    with CaptureQueriesContext(connection) as sent:
        assert phase_move(
            phase_id=phase.id, to=PhaseState.DRAINING, reason="a batch", author="scheduler", fields=told
        )

    assert len(sent) == 1
    phase.refresh_from_db()
    assert {name: getattr(phase, name) for name in told} == told
    assert (phase.state, phase.reason, phase.active_at, phase.ended_at) == ("draining", "a batch", None, None)
    assert phase.draining_at is not None
    event = Event.objects.get(subject_id=phase.id)
    assert (event.kind, event.from_state, event.to_state) == ("phase.state", "leased", "draining")
    assert (event.job_id, event.project_id, event.subject_type) == (job.id, job.project_id, "phase")
    assert (event.reason, event.author, event.at) == ("a batch", "scheduler", phase.draining_at)
    assert event.data == {"machine_id": str(beta.machine.id), "role": "rollout"}


@pytest.mark.parametrize("source", PhaseState)
def test_moves_are_those_of_the_table_and_a_refused_one_leaves_nothing(
    cast: Cast, source: PhaseState
) -> None:
    job, beta = cast.job(is_running=True), worker_make("beta", "rollout")
    phase = phase_make(job, beta.machine, Role.ROLLOUT)
    for to in PhaseState:
        Phase.objects.filter(id=phase.id).update(state=source.value, boot_id=None)
        Event.objects.all().delete()

        has_moved = phase_move(phase_id=phase.id, to=to, reason="", author="test")

        assert has_moved == PHASE_MOVES.allows(source, to), to
        assert Phase.objects.get(id=phase.id).state == (to if has_moved else source)
        assert Event.objects.count() == has_moved


def test_a_stale_fence_moves_nothing(cast: Cast) -> None:
    job, beta = cast.job(is_running=True), worker_make("beta", "rollout")
    phase = phase_make(job, beta.machine, Role.ROLLOUT)
    for to in (PhaseState.ACTIVE, PhaseState.FAILED):
        assert not phase_move(phase_id=phase.id, fence=phase.fence + 1, to=to, reason="", author="test")
    job.refresh_from_db()
    assert (Phase.objects.get(id=phase.id).state, job.num_failures) == ("leased", 0)
    assert not Event.objects.filter(subject_id=phase.id).exists()


@pytest.mark.django_db(transaction=True)
def test_gateways_and_scheduler_are_told_when_the_move_commits(cast: Cast) -> None:
    job = cast.job(is_running=True)
    phases = [
        phase_make(job, worker_make(role.value, role.value).machine, role)
        for role in (Role.ROLLOUT, Role.AGENT)
    ]
    with psycopg.connect(**connection_arguments(), autocommit=True) as listening:
        listening.execute("LISTEN sf_engines")
        listening.execute("LISTEN sf_scheduler")
        with transaction.atomic():
            for phase in phases:
                phase_move(phase_id=phase.id, to=PhaseState.ACTIVE, reason="", author="test")
            assert list(listening.notifies(timeout=0.1)) == []
        heard = {(told.channel, told.payload) for told in listening.notifies(timeout=10, stop_after=3)}

    assert heard == {
        ("sf_engines", str(job.id)),
        *(("sf_scheduler", f"phase {phase.id} is active") for phase in phases),
    }


@pytest.mark.django_db(transaction=True)
def test_a_move_waits_for_another_one_and_is_judged_by_what_that_left(cast: Cast) -> None:
    job, beta = cast.job(is_running=True), worker_make("beta", "rollout")
    phase = phase_make(job, beta.machine, Role.ROLLOUT)

    def moved(to: PhaseState) -> bool:
        try:
            return phase_move(phase_id=phase.id, to=to, reason="", author="test")
        finally:
            connections.close_all()

    def somebody_waits() -> bool:
        with connection.cursor() as cursor:
            cursor.execute("SELECT count(*) FROM pg_locks WHERE NOT granted")
            return bool(cursor.fetchone()[0])

    for first, second, is_allowed in (
        (PhaseState.STARTING, PhaseState.DRAINING, True),
        (PhaseState.ENDED, PhaseState.FAILED, False),
    ):
        with ThreadPoolExecutor(1) as threads:
            with transaction.atomic():
                assert phase_move(phase_id=phase.id, to=first, reason="", author="test")
                waiting = threads.submit(moved, second)
                until(somebody_waits, what="the second move waits")
            assert waiting.result() is is_allowed
    moves = Event.objects.filter(subject_id=phase.id).order_by("id").values_list("from_state", "to_state")
    assert list(moves) == [("leased", "starting"), ("starting", "draining"), ("draining", "ended")]
    job.refresh_from_db()
    assert job.num_failures == 0
