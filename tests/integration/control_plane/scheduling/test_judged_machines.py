"""Machines that fail phases, with PostgreSQL: the failures that a cycle reads, quarantines, their ends and events."""

from datetime import timedelta
from uuid import UUID

import orjson
import pytest
from django.db.models import F
from django.test import Client
from django.utils import timezone

from seamlessflow.control_plane.cluster.models import Machine
from seamlessflow.control_plane.cluster.services.phases import phase_move
from seamlessflow.control_plane.common.errors import ApplicationError
from seamlessflow.control_plane.common.models import Event
from seamlessflow.control_plane.jobs.models import Job
from seamlessflow.control_plane.jobs.services.moves import job_desire
from seamlessflow.control_plane.policies.models import PolicyVersion
from seamlessflow.control_plane.scheduling.models import MachineJudgement, Phase
from seamlessflow.control_plane.scheduling.selectors.snapshot import snapshot_load
from seamlessflow.control_plane.scheduling.services.judgements import machine_release
from seamlessflow.control_plane.scheduling.services.leases import plan_apply
from seamlessflow.core.lifecycle.jobs import DesiredJobState, PausedBy
from seamlessflow.core.lifecycle.phases import LIVE_PHASE_STATES, FailureCause, PhaseState
from seamlessflow.core.protocol.worker import PhaseReport
from seamlessflow.core.scheduling.blame.judging import QUARANTINE_S
from seamlessflow.core.scheduling.decisions import AdmitMachine
from seamlessflow.core.scheduling.evidence import PROVEN_S
from seamlessflow.core.scheduling.scheduler import decide
from seamlessflow.core.scheduling.snapshot import FailureView, MachineView
from seamlessflow.core.types.desired_state import SETTINGS
from seamlessflow.core.types.ids import IdKind, show_id
from seamlessflow.core.types.tags import Role
from tests.fixtures.control_plane import Cast, Worker, phase_make, worker_make


def cycle() -> None:
    plan_apply(decide(snapshot_load()))


def fail(phase: Phase, cause: FailureCause = FailureCause.WORK) -> None:
    assert phase_move(
        phase_id=phase.id, to=PhaseState.FAILED, reason="it broke", author="machine", cause=cause
    )


def live_on(worker: Worker) -> Phase | None:
    return Phase.objects.filter(machine=worker.machine, state__in=LIVE_PHASE_STATES).first()


def seen(worker: Worker) -> MachineView:
    return next(machine for machine in snapshot_load().machines if machine.id == worker.machine.id)


def failures() -> dict[str, FailureView]:
    names = {machine.id: machine.name for machine in snapshot_load().machines}
    return {names[failure.machine_id]: failure for failure in snapshot_load().failures}


def older(phase: Phase, by_s: float) -> None:
    by = timedelta(seconds=by_s)
    moments = ("leased_at", "active_at", "ended_at")
    Phase.objects.filter(id=phase.id).update(**{name: F(name) - by for name in moments})


def fleet(cast: Cast) -> tuple[Job, dict[str, Worker]]:
    """Return a job that has rolled out on `good` for a while, and two machines more."""
    workers = {name: worker_make(name, "rollout", "train") for name in ("bad", "good", "other")}
    for worker in workers.values():
        worker.heartbeat()
    job = cast.job(is_running=True, environment={"name": "external"})
    engine = phase_make(job, workers["good"].machine, Role.ROLLOUT)
    assert phase_move(phase_id=engine.id, to=PhaseState.ACTIVE, reason="up", author="machine")
    older(engine, PROVEN_S + 1.0)
    return job, workers


def quarantined(cast: Cast) -> tuple[Job, dict[str, Worker]]:
    job, workers = fleet(cast)
    for _ in range(2):
        fail(phase_make(job, workers["bad"].machine, Role.ROLLOUT))
    cycle()
    assert MachineJudgement.objects.get(machine__name="bad").quarantined_at is not None
    return job, workers


def backoff_end() -> None:
    MachineJudgement.objects.update(
        quarantined_at=F("quarantined_at") - timedelta(hours=1), until_at=F("until_at") - timedelta(hours=1)
    )


def trial(worker: Worker) -> Phase:
    """Return the phase that tries the machine out."""
    backoff_end()
    cycle()
    phase = live_on(worker)
    assert phase is not None
    return phase


def test_a_machine_that_fails_a_job_which_works_elsewhere_gets_no_work_and_an_event_says_why(
    cast: Cast,
) -> None:
    _, workers = quarantined(cast)

    judgement = MachineJudgement.objects.get()
    assert judgement.until_at is not None
    assert judgement.quarantined_at is not None
    assert (judgement.until_at - judgement.quarantined_at).total_seconds() == QUARANTINE_S
    assert judgement.reason == "2 rollout phases failed on it, of jobs that work elsewhere"
    event = Event.objects.get(kind="machine.quarantined")
    assert (event.author, event.reason, event.subject_id) == (
        "scheduler",
        judgement.reason,
        workers["bad"].machine.id,
    )
    for _ in range(3):
        cycle()
    assert live_on(workers["bad"]) is None
    assert live_on(workers["other"]) is not None
    assert MachineJudgement.objects.get().num_quarantines == 1, "its failures are judged"


def test_a_failed_trial_doubles_the_quarantine_and_only_one_phase_is_tried(cast: Cast) -> None:
    _, workers = quarantined(cast)
    phase = trial(workers["bad"])
    cycle()
    assert Phase.objects.filter(machine=workers["bad"].machine, state__in=LIVE_PHASE_STATES).count() == 1
    assert seen(workers["bad"]).quarantine is not None, "it is being tried"
    fail(phase)
    cycle()

    judgement = MachineJudgement.objects.get()
    assert judgement.quarantined_at is not None
    assert judgement.until_at is not None
    assert (judgement.until_at - judgement.quarantined_at).total_seconds() == 2 * QUARANTINE_S
    assert judgement.num_quarantines == 2
    assert live_on(workers["bad"]) is None


@pytest.mark.parametrize("has_ended", [True, False])
def test_a_trial_that_works_ends_the_quarantine(cast: Cast, has_ended: bool) -> None:
    _, workers = quarantined(cast)
    phase = trial(workers["bad"])
    assert phase_move(phase_id=phase.id, to=PhaseState.ACTIVE, reason="up", author="machine")
    cycle()
    assert MachineJudgement.objects.get().quarantined_at is not None, "it has only begun"
    if has_ended:
        assert phase_move(phase_id=phase.id, to=PhaseState.ENDED, reason="handed over", author="machine")
    else:
        older(phase, PROVEN_S + 1.0)
    cycle()

    judgement = MachineJudgement.objects.get()
    assert (judgement.quarantined_at, judgement.num_quarantines) == (None, 0)
    assert Event.objects.get(kind="machine.admitted").author == "scheduler"
    cycle()
    assert Event.objects.filter(kind="machine.quarantined").count() == 1, "old failures are over"


def test_a_person_releases_a_machine_with_a_reason_and_its_failures_are_forgotten(cast: Cast) -> None:
    _, workers = quarantined(cast)
    machine = workers["bad"].machine
    with pytest.raises(ApplicationError, match="say why"):
        machine_release(machine_id=machine.id, reason=" ", author="user:ada")
    machine_release(machine_id=machine.id, reason="a new card", author="user:ada")
    event = Event.objects.get(kind="machine.released")
    assert (event.author, event.reason) == ("user:ada", "a new card")
    with pytest.raises(ApplicationError, match="bad is in no quarantine"):
        machine_release(machine_id=machine.id, reason="again", author="user:ada")
    with pytest.raises(ApplicationError):
        machine_release(machine_id=UUID(int=1), reason="who", author="user:ada")
    cycle()
    assert live_on(workers["bad"]) is not None
    assert Event.objects.filter(kind="machine.quarantined").count() == 1


def test_people_see_a_quarantine_over_rest_and_only_operators_end_it(cast: Cast) -> None:
    _, workers = quarantined(cast)
    path = f"machines/{show_id(IdKind.MACHINE, workers['bad'].machine.id)}"

    shown = orjson.loads(cast.owner.call("GET", path).content)["quarantine"]
    assert shown["reason"] == "2 rollout phases failed on it, of jobs that work elsewhere"
    assert (shown["num_quarantines"], shown["is_on_trial"]) == (1, False)
    trial(workers["bad"])
    assert orjson.loads(cast.owner.call("GET", path).content)["quarantine"]["is_on_trial"]

    body = {"reason": "a new card"}
    assert cast.owner.call("POST", f"{path}/release", body).status_code == 403
    assert cast.operator.call("POST", f"{path}/release", {}).status_code == 400
    released = cast.operator.call("POST", f"{path}/release", body)
    assert (released.status_code, orjson.loads(released.content)["quarantine"]) == (200, None)
    assert cast.operator.call("POST", f"{path}/release", body).status_code == 409
    events = orjson.loads(cast.owner.call("GET", f"{path}/events").content)["results"]
    assert [event["kind"] for event in events][:2] == ["machine.released", "machine.quarantined"]


def test_the_admin_page_of_a_machine_shows_its_quarantine_and_ends_it(cast: Cast) -> None:
    _, workers = quarantined(cast)
    cast.owner.user.is_superuser = True
    cast.owner.user.save()
    browser = Client()
    browser.force_login(cast.owner.user)
    machine = workers["bad"].machine
    page = f"/admin/cluster/machine/{machine.id}/change/"

    assert "of jobs that work elsewhere" in browser.get(page).content.decode()
    assert "quarantined until" in browser.get("/admin/cluster/machine/").content.decode()
    fields = {
        "tags": ",".join(machine.tags),
        **{name: getattr(machine, name) for name in SETTINGS},
        "reason": "a new card",
        "seen_generation": machine.generation,
    }
    assert browser.post(page, fields | {"is_released": "on"}).status_code == 302
    assert MachineJudgement.objects.get().quarantined_at is None
    assert Event.objects.get(kind="machine.released").author == "user:olga"


def test_a_job_that_waits_is_told_which_machine_is_in_quarantine_and_until_when(cast: Cast) -> None:
    job, workers = quarantined(cast)
    Machine.objects.exclude(name="bad").update(is_draining=True, is_cordoned=True)
    Phase.objects.filter(state__in=LIVE_PHASE_STATES).update(state=PhaseState.ENDED)
    until_at = MachineJudgement.objects.get().until_at
    cycle()
    cycle()

    job.refresh_from_db()
    assert until_at is not None
    assert (
        f"bad is in quarantine until {until_at:%H:%M:%S} UTC: 2 rollout phases failed" in job.waiting_reason
    )
    assert live_on(workers["bad"]) is None


def test_a_job_that_fails_on_three_machines_pauses_by_the_platform(cast: Cast) -> None:
    workers = [worker_make(f"m{number}", "rollout", "train") for number in range(4)]
    for worker in workers:
        worker.heartbeat()
    job = cast.job(is_running=True, environment={"name": "external"})
    for worker in workers[:3]:
        fail(phase_make(job, worker.machine, Role.ROLLOUT))
    cycle()

    job.refresh_from_db()
    reason = "its rollout phases failed on m0, m1 and m2, which fail no other job; last failure: it broke"
    assert (job.desired, job.pause_reason) == ("pause", reason)
    assert Event.objects.get(kind="job.desired").author == "platform"
    assert not MachineJudgement.objects.exists()
    assert not Phase.objects.filter(state__in=LIVE_PHASE_STATES).exists()


def test_a_plan_from_before_a_person_resumed_the_job_does_not_pause_it_again(cast: Cast) -> None:
    """As that of a scheduler that has lost its lock while it decided."""
    workers = [worker_make(f"m{number}", "rollout", "train") for number in range(4)]
    for worker in workers:
        worker.heartbeat()
    job = cast.job(is_running=True, environment={"name": "external"})
    for worker in workers[:3]:
        fail(phase_make(job, worker.machine, Role.ROLLOUT))
    plan = decide(snapshot_load())
    plan_apply(plan)
    job_desire(job_id=job.id, desired=DesiredJobState.RUN, reason="mended", author="user:ada")
    plan_apply(plan)

    job.refresh_from_db()
    assert (job.desired, job.pause_reason) == ("run", "")


def test_a_plan_from_before_a_later_quarantine_does_not_end_it(cast: Cast) -> None:
    _, workers = quarantined(cast)
    phase = trial(workers["bad"])
    assert phase_move(phase_id=phase.id, to=PhaseState.ACTIVE, reason="up", author="machine")
    older(phase, PROVEN_S + 1.0)
    plan = decide(snapshot_load())
    assert any(isinstance(decision, AdmitMachine) for decision in plan.decisions)
    MachineJudgement.objects.update(judged_fence=phase.fence, num_quarantines=2)
    plan_apply(plan)

    assert MachineJudgement.objects.get().quarantined_at is not None


def test_agents_that_end_well_prove_nothing_of_a_machine_that_rolls_out(cast: Cast) -> None:
    job, workers = quarantined(cast)
    bad = workers["bad"]
    agents = phase_make(job, bad.machine, Role.AGENT)
    assert phase_move(phase_id=agents.id, to=PhaseState.ACTIVE, reason="up", author="machine")
    path = f"machines/{show_id(IdKind.MACHINE, bad.machine.id)}"
    backoff_end()
    assert orjson.loads(cast.owner.call("GET", path).content)["quarantine"]["is_on_trial"]
    assert phase_move(phase_id=agents.id, to=PhaseState.ENDED, reason="done", author="machine")
    quarantine = seen(bad).quarantine
    assert quarantine is not None
    assert not quarantine.is_proven
    assert not failures()["bad"].machine_works
    Machine.objects.filter(id=bad.machine.id).update(tags=["agent"])
    quarantine = seen(bad).quarantine
    assert quarantine is not None
    assert quarantine.is_proven, "it can do nothing else"


def test_what_was_there_before_a_quarantine_is_no_trial(cast: Cast) -> None:
    job, workers = fleet(cast)
    bad = workers["bad"]
    agents = phase_make(job, bad.machine, Role.AGENT)
    for _ in range(2):
        fail(phase_make(job, bad.machine, Role.ROLLOUT))
    cycle()
    backoff_end()
    assert agents.fence < MachineJudgement.objects.get().judged_fence
    path = f"machines/{show_id(IdKind.MACHINE, bad.machine.id)}"
    assert not orjson.loads(cast.owner.call("GET", path).content)["quarantine"]["is_on_trial"]


def test_only_work_that_failed_is_evidence(cast: Cast) -> None:
    job, workers = fleet(cast)
    fail(phase_make(job, workers["bad"].machine, Role.ROLLOUT), FailureCause.SILENCE)
    assert snapshot_load().failures == ()
    fail(phase_make(job, workers["bad"].machine, Role.ROLLOUT))
    (failure,) = snapshot_load().failures
    assert (failure.job_id, failure.role, failure.reason) == (job.id, Role.ROLLOUT, "it broke")
    assert failure.age_s < 10.0
    Phase.objects.filter(failure_cause="work").update(ended_at=timezone.now() - timedelta(hours=2))
    assert snapshot_load().failures == (), "it is too long ago"


def test_what_ended_well_speaks_for_the_machine_and_for_the_job(cast: Cast) -> None:
    job, workers = fleet(cast)
    other = cast.job(is_running=True, name="other", environment={"name": "external"})
    fail(phase_make(job, workers["bad"].machine, Role.ROLLOUT))
    assert not failures()["bad"].machine_works
    for worker, its_job, active_s in (
        (workers["bad"], other, 1.0),
        (workers["other"], job, PROVEN_S - 5.0),
    ):
        _ended(worker, its_job, active_s)
    assert failures()["bad"].machine_works
    assert not failures()["bad"].job_works, "it was active too shortly to prove anything"
    _ended(workers["other"], job, PROVEN_S + 5.0)
    assert failures()["bad"].job_works


def _ended(worker: Worker, job: Job, active_s: float) -> None:
    phase = phase_make(job, worker.machine, Role.ROLLOUT)
    assert phase_move(phase_id=phase.id, to=PhaseState.ACTIVE, reason="up", author="machine")
    assert phase_move(phase_id=phase.id, to=PhaseState.ENDED, reason="done", author="machine")
    Phase.objects.filter(id=phase.id).update(ended_at=F("active_at") + timedelta(seconds=active_s))


def test_a_publication_since_shows_that_the_job_works(cast: Cast) -> None:
    job, workers = fleet(cast)
    trained = [phase_make(job, workers["bad"].machine, Role.TRAIN)]
    fail(trained[0])
    fail(phase_make(job, workers["bad"].machine, Role.TRAIN))
    cycle()
    assert not MachineJudgement.objects.exists(), "nothing shows that training works elsewhere"
    PolicyVersion.objects.create(project=job.project, job=job, version=1, uri="file:///1", batch_number=1)
    PolicyVersion.objects.filter(version=1).update(published_at=timezone.now())
    Job.objects.filter(id=job.id).update(latest_version=1, published_batch=1)
    cycle()
    assert MachineJudgement.objects.get().machine_id == workers["bad"].machine.id


def test_what_a_job_names_pauses_it_at_once_and_says_nothing_of_the_machine(cast: Cast) -> None:
    worker = worker_make("alpha", "rollout", "train")
    worker_make("beta", "rollout", "train").heartbeat()
    worker.heartbeat()
    for number in range(4):
        job = cast.job(is_running=True, name=f"broken {number}")
        phase = phase_make(job, worker.machine, Role.ROLLOUT)
        said = PhaseReport(
            phase_id=phase.id,
            fence=phase.fence,
            state=PhaseState.FAILED,
            reason="vocab_size is 0",
            cause=FailureCause.INPUT,
        )
        worker.heartbeat(phases=[said])
        cycle()
        job.refresh_from_db()
        assert (job.desired, job.num_failures) == ("pause", 0)
        assert job.pause_reason == "rollout on alpha: vocab_size is 0"
        assert job.paused_by is PausedBy.PLATFORM
    assert (seen(worker).quarantine, failures()) == (None, {})


def test_an_input_fault_of_a_phase_from_before_a_person_resumed_the_job_changes_nothing(cast: Cast) -> None:
    worker, job = worker_make("alpha", "rollout"), cast.job(is_running=True)
    phase = phase_make(job, worker.machine, Role.ROLLOUT)
    Job.objects.filter(id=job.id).update(resumed_at=timezone.now() + timedelta(seconds=1))
    fail(phase, FailureCause.INPUT)
    job.refresh_from_db()
    assert (job.desired, job.num_failures) == ("run", 0)
