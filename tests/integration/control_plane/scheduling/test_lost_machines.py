"""Eleven machines of thirty fall silent at once, with PostgreSQL: no job ends or pauses, and no machine is blamed."""

from collections.abc import Sequence
from datetime import timedelta

from django.utils import timezone

from seamlessflow.control_plane.cluster.models import Machine, MachineHeartbeat
from seamlessflow.control_plane.cluster.services.phases import phase_move
from seamlessflow.control_plane.jobs.models import Job
from seamlessflow.control_plane.scheduling.models import MachineJudgement, Phase
from seamlessflow.control_plane.scheduling.selectors.snapshot import snapshot_load
from seamlessflow.control_plane.scheduling.services.leases import plan_apply
from seamlessflow.core.lifecycle.jobs import JobState
from seamlessflow.core.lifecycle.phases import LIVE_PHASE_STATES, FailureCause, PhaseState
from seamlessflow.core.scheduling.scheduler import decide
from tests.fixtures.control_plane import Cast, Worker, worker_make

NUM_MACHINES, NUM_LOST, NUM_JOBS = 30, 11, 3
UNHEARD = timedelta(minutes=1)


def cycle() -> None:
    plan_apply(decide(snapshot_load()))


def live(job: Job, workers: Sequence[Worker]) -> int:
    """Return how many phases of a job are live on machines."""
    machine_ids = [worker.machine.id for worker in workers]
    return Phase.objects.filter(job=job, machine_id__in=machine_ids, state__in=LIVE_PHASE_STATES).count()


def work_goes_on() -> None:
    """Let whatever was leased be active, and what is to drain end, as the machines would report it."""
    for phase in Phase.objects.filter(state=PhaseState.DRAINING.value):
        assert phase_move(phase_id=phase.id, to=PhaseState.ENDED, reason="drained", author="machine")
    for phase in Phase.objects.filter(state=PhaseState.LEASED.value):
        for state in (PhaseState.STARTING, PhaseState.ACTIVE):
            assert phase_move(phase_id=phase.id, to=state, reason="", author="machine")


def test_fault_4_eleven_machines_that_are_lost_at_once_cost_no_job_its_life(cast: Cast) -> None:
    workers = [worker_make(f"m{number:02}", "rollout", "train") for number in range(NUM_MACHINES)]
    for worker in workers:
        worker.heartbeat()
    jobs = [cast.job(is_running=True, environment={"name": "external"}) for _ in range(NUM_JOBS)]
    cycle()
    work_goes_on()
    held = Phase.objects.filter(state__in=LIVE_PHASE_STATES).values_list("machine_id", flat=True)
    lost = sorted(workers, key=lambda worker: worker.machine.id not in set(held))[:NUM_LOST]
    left = [worker for worker in workers if worker not in lost]
    assert sum(live(job, lost) for job in jobs) == NUM_LOST

    lost_ids = [worker.machine.id for worker in lost]
    MachineHeartbeat.objects.filter(machine_id__in=lost_ids).update(received_at=timezone.now() - UNHEARD)
    for _ in range(3):
        cycle()
        work_goes_on()

    failed = Phase.objects.filter(state=PhaseState.FAILED.value)
    assert failed.count() == NUM_LOST
    assert {phase.failure_cause for phase in failed} == {FailureCause.SILENCE.value}
    assert not MachineJudgement.objects.filter(quarantined_at__isnull=False).exists()
    for job in jobs:
        assert live(job, lost) == 0
        assert live(job, left) > 0
        assert Job.objects.get(id=job.id).state == JobState.RUNNING
    for worker in lost:
        worker.heartbeat()
    cycle()
    assert Machine.objects.filter(id__in=lost_ids, phases__state__in=LIVE_PHASE_STATES).count() == NUM_LOST
