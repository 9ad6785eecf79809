"""Machines that roll out slowly, with PostgreSQL: what gateways tell, quarantines, their reasons and ends."""

from datetime import timedelta
from uuid import UUID

import orjson
import pytest
from django.db.models import F
from django.utils import timezone
from pytest_django import DjangoAssertNumQueries

from seamlessflow.control_plane.cluster.services.phases import phase_move
from seamlessflow.control_plane.common.models import Event
from seamlessflow.control_plane.jobs.models import Job
from seamlessflow.control_plane.scheduling.models import MachineJudgement, Phase
from seamlessflow.control_plane.scheduling.selectors.pace_rows import sampled_load
from seamlessflow.control_plane.scheduling.selectors.snapshot import snapshot_load
from seamlessflow.control_plane.scheduling.services.leases import plan_apply
from seamlessflow.control_plane.trajectories.models import Gateway
from seamlessflow.core.lifecycle.phases import PhaseState
from seamlessflow.core.scheduling.scheduler import decide
from seamlessflow.core.scheduling.snapshot import PaceView
from seamlessflow.core.types.ids import IdKind, show_id
from seamlessflow.core.types.tags import Role
from tests.fixtures.control_plane import Cast, Worker, phase_make, worker_make

NAMES = ("slow", "b", "c", "d", "e")
REASON = "it rolls out at 0.31 of the rate of the 4 other machines of the same job"


def cycle() -> None:
    plan_apply(decide(snapshot_load()))


def engine(job: Job, worker: Worker) -> Phase:
    """Return an engine of the job that has been active for a while."""
    phase = phase_make(job, worker.machine, Role.ROLLOUT)
    assert phase_move(phase_id=phase.id, to=PhaseState.ACTIVE, reason="up", author="machine")
    Phase.objects.filter(id=phase.id).update(active_at=F("active_at") - timedelta(seconds=100))
    return phase


def tell(number: int, paces: dict[UUID, list[float]] | None) -> None:
    told = None if paces is None else {str(phase): sums for phase, sums in paces.items()}
    Gateway.objects.update_or_create(
        name=f"http://g{number}",
        defaults={"public_url": f"http://g{number}", "seen_at": timezone.now(), "paces": told},
    )


def fleet(cast: Cast) -> tuple[dict[str, Worker], dict[str, Phase]]:
    """Return machines that roll out for a job. One of them is slow, which only the sums of both gateways show."""
    workers = {name: worker_make(name, "rollout", "train") for name in NAMES}
    job = cast.job(is_running=True, environment={"name": "external"})
    for worker in workers.values():
        worker.heartbeat()
    phases = {name: engine(job, worker) for name, worker in workers.items()}
    tell(0, {phase.id: [930.0 if name == "slow" else 3000.0, 30.0] for name, phase in phases.items()})
    tell(1, {phase.id: [1240.0 if name == "slow" else 4000.0, 40.0] for name, phase in phases.items()})
    tell(2, None)  # one of the version before
    return workers, phases


def test_a_snapshot_has_the_sums_of_all_gateways(
    cast: Cast, django_assert_num_queries: DjangoAssertNumQueries
) -> None:
    workers, phases = fleet(cast)
    with django_assert_num_queries(1):
        sampled = sampled_load()
    assert sampled[phases["slow"].id] == (2170.0, 70.0)
    assert sampled[phases["b"].id] == (7000.0, 70.0)
    paces = {one.name: one.phase.pace for one in snapshot_load().machines if one.phase is not None}
    assert [name for name, pace in paces.items() if pace is not None] == ["slow"]
    pace = paces["slow"]
    assert isinstance(pace, PaceView)
    assert pace.is_slow
    assert pace.share == pytest.approx(0.31)
    assert pace.num_others == 4
    Gateway.objects.filter(name="http://g1").delete()
    assert all(one.phase is None or one.phase.pace is None for one in snapshot_load().machines), (
        "too little is known"
    )
    assert len(workers) == len(NAMES)


def test_a_slow_machine_is_quarantined_and_people_see_why(cast: Cast) -> None:
    workers, phases = fleet(cast)
    cycle()
    judgement = MachineJudgement.objects.get()
    assert (judgement.machine.name, judgement.reason, judgement.is_slow) == ("slow", REASON, True)
    event = Event.objects.get(kind="machine.quarantined")
    assert (event.reason, event.subject_id) == (REASON, workers["slow"].machine.id)
    phase = Phase.objects.get(id=phases["slow"].id)
    assert (phase.state, phase.next_role) == (PhaseState.DRAINING, "")
    assert Phase.objects.filter(state=PhaseState.ACTIVE).count() == len(NAMES) - 1
    path = f"machines/{show_id(IdKind.MACHINE, workers['slow'].machine.id)}"
    assert orjson.loads(cast.owner.call("GET", path).content)["quarantine"]["reason"] == REASON
    cycle()
    assert MachineJudgement.objects.get().num_quarantines == 1


def trial(cast: Cast, tokens: float | None) -> None:
    """Let the engine that tries the slow machine out sample so much, and decide once more."""
    workers, phases = fleet(cast)
    cycle()
    assert phase_move(phase_id=phases["slow"].id, to=PhaseState.ENDED, reason="drained", author="machine")
    MachineJudgement.objects.update(
        quarantined_at=F("quarantined_at") - timedelta(seconds=100),
        until_at=F("until_at") - timedelta(seconds=100),
    )
    phase = engine(Job.objects.get(), workers["slow"])
    if tokens is not None:
        others = {one.id: [7000.0, 70.0] for name, one in phases.items() if name != "slow"}
        tell(0, others | {phase.id: [tokens, 70.0]})
        tell(1, {})
    cycle()


def test_a_trial_that_is_slow_again_doubles_the_quarantine(cast: Cast) -> None:
    trial(cast, 700.0)
    judgement = MachineJudgement.objects.get()
    assert judgement.until_at is not None
    assert judgement.quarantined_at is not None
    assert (judgement.num_quarantines, judgement.is_slow) == (2, True)
    assert (judgement.until_at - judgement.quarantined_at).total_seconds() == 60.0


@pytest.mark.parametrize("tokens, is_admitted", [(6500.0, True), (None, False)])
def test_a_trial_ends_the_quarantine_by_its_pace_alone(
    cast: Cast, tokens: float | None, is_admitted: bool
) -> None:
    """It has been active for long enough to clear a machine that failed."""
    trial(cast, tokens)
    judgement = MachineJudgement.objects.get()
    assert (judgement.quarantined_at is None, judgement.num_quarantines == 0) == (is_admitted, is_admitted)
    assert Event.objects.filter(kind="machine.admitted").count() == is_admitted
