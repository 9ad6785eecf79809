"""Transactions of scheduler and machines that use the same rows wait for one another without
deadlock."""

from concurrent.futures import ThreadPoolExecutor

import pytest
from django.db import connection, connections, transaction

from seamlessflow.control_plane.jobs.models import Job
from seamlessflow.control_plane.scheduling.models import Phase
from seamlessflow.control_plane.scheduling.services.leases import WakeUp, phase_lease
from seamlessflow.core.lifecycle.phases import PhaseState
from seamlessflow.core.scheduling.decisions import Lease
from seamlessflow.core.types.tags import Role
from tests.fixtures.control_plane import Cast, worker_make
from tests.fixtures.processes import until

pytestmark = pytest.mark.django_db(transaction=True)


def somebody_waits_for_a_lock() -> bool:
    with connection.cursor() as cursor:
        cursor.execute("SELECT count(*) FROM pg_locks WHERE NOT granted")
        return bool(cursor.fetchone()[0])


def test_a_heartbeat_that_fails_a_phase_commits_while_its_machine_is_leased(cast: Cast) -> None:
    job = cast.job(is_running=True)
    worker = worker_make("alpha", "rollout")
    worker.heartbeat()
    lease = Lease(
        machine_id=worker.machine.id, machine="alpha", job_id=job.id, role=Role.ROLLOUT, reason="test"
    )

    def leased() -> WakeUp | None:
        try:
            return phase_lease(lease)
        finally:
            connections.close_all()

    with ThreadPoolExecutor(1) as threads:
        with transaction.atomic():
            # As a heartbeat does: the job is locked, and a row is written whose machine the commit looks for.
            Job.objects.select_for_update(no_key=True).only("id").get(id=job.id)
            Phase.objects.create(
                project_id=job.project_id,
                job=job,
                machine=worker.machine,
                role=Role.ROLLOUT.value,
                fence=0,
                state=PhaseState.FAILED.value,
            )
            leasing = threads.submit(leased)
            until(somebody_waits_for_a_lock, what="the lease waits")
        wake_up = leasing.result()

    assert wake_up is not None
    assert Phase.objects.get(id=wake_up.phase_id).fence == wake_up.fence
