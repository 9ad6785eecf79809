"""Dry runs over REST: the scheduler computes them, they show the work in flight, and they change
nothing."""

import json
from typing import Any

from django.test import Client
from django.utils import timezone

from seamlessflow.control_plane.cluster.models import Machine, MachineHeartbeat
from seamlessflow.control_plane.cluster.services.phases import phase_move
from seamlessflow.control_plane.common.ids import new_id
from seamlessflow.control_plane.common.models import Event
from seamlessflow.control_plane.jobs.models import Job
from seamlessflow.control_plane.scheduling.models import Phase
from seamlessflow.control_plane.scheduling.selectors.snapshot import snapshot_load
from seamlessflow.control_plane.scheduling.services.leases import plan_apply
from seamlessflow.control_plane.trajectories.models import Session
from seamlessflow.core.lifecycle.phases import PhaseState
from seamlessflow.core.protocol.worker import EngineReport, PhaseReport
from seamlessflow.core.scheduling.scheduler import decide
from seamlessflow.core.types.ids import IdKind, show_id
from tests.fixtures.control_plane import Cast, Person, Worker, group_make, worker_make


def cycle() -> None:
    plan_apply(decide(snapshot_load()))


def running_job(cast: Cast) -> tuple[Job, dict[str, Worker]]:
    """A job on alpha {rollout, train}, beta {rollout} and gamma {agent}, all phases active."""
    tags = {"alpha": ("rollout", "train"), "beta": ("rollout",), "gamma": ("agent",)}
    workers = {name: worker_make(name, *wanted) for name, wanted in tags.items()}
    for worker in workers.values():
        worker.heartbeat()
    job = cast.job()
    cycle()
    for phase in Phase.objects.filter(state=PhaseState.LEASED):
        assert phase_move(phase_id=phase.id, to=PhaseState.ACTIVE, reason="test", author="machine")
    cycle()
    return Job.objects.get(id=job.id), workers


def preview(person: Person, *edits: tuple[str, dict[str, Any]]) -> dict[str, Any]:
    body = {"edits": [{"machine_id": machine_id(name), **edit} for name, edit in edits]}
    response = person.call("POST", "machines/preview", body)
    assert response.status_code == 200, response.content
    return dict(json.loads(response.content))


def machine_id(name: str) -> str:
    return show_id(IdKind.MACHINE, Machine.objects.get(name=name).id)


def report_requests(worker: Worker, number: int) -> None:
    phase = Phase.objects.get(machine=worker.machine)
    report = PhaseReport(
        phase_id=phase.id,
        fence=phase.fence,
        state=PhaseState.ACTIVE,
        endpoints=[EngineReport(replica=0, served_version=0, num_in_flight=number)],
    )
    worker.heartbeat(phases=[report])


def test_the_dry_run_of_a_retag_says_what_happens_to_each_phase(cast: Cast) -> None:
    _, workers = running_job(cast)
    report_requests(workers["alpha"], 12)

    shown = preview(cast.operator, ("alpha", {"tags": ["train"]}))

    (impact,) = shown["phases"]
    assert (impact["machine"], impact["impact"], impact["successors"], impact["load"]) == (
        "alpha",
        "drains",
        ["beta"],
        12,
    )
    assert impact["sentence"] == (
        "alpha: the rollout phase of calculator drains, because alpha lacks the tag rollout; "
        "its requests are handed over to beta and continue from their own tokens."
    )
    (job,) = shown["jobs"]
    assert (job["before"]["rollout"], job["after"]["rollout"]) == (["alpha", "beta"], ["beta"])
    assert job["sentence"] == "calculator rolls out on beta instead of alpha and beta."


def test_the_dry_run_of_several_edits_at_once_sees_them_together(cast: Cast) -> None:
    running_job(cast)

    shown = preview(cast.operator, ("alpha", {"tags": ["rollout"]}), ("beta", {"tags": ["rollout", "train"]}))

    assert [(impact["machine"], impact["impact"]) for impact in shown["phases"]] == [
        ("alpha", "stays"),
        ("alpha", "drains"),
        ("beta", "stays"),
    ]
    assert [impact["is_turn"] for impact in shown["phases"]] == [False, True, False]
    assert shown["jobs"][0]["sentence"] == "calculator trains on beta instead of alpha."


def test_the_dry_run_says_that_the_job_would_wait_and_for_what(cast: Cast) -> None:
    running_job(cast)

    shown = preview(cast.operator, ("alpha", {"tags": ["rollout"]}))

    assert "no machine has the tags for role train: train" in shown["jobs"][0]["sentence"]
    assert shown["jobs"][0]["after"]["train"] == []


def test_the_dry_run_counts_the_episodes_of_an_agent_machine(cast: Cast) -> None:
    job, workers = running_job(cast)
    group = group_make(job, 0)
    group.lease_phase_id = Phase.objects.get(machine=workers["gamma"].machine).id
    group.save()
    for slot in range(3):
        Session.objects.create(
            id=new_id(), project_id=job.project_id, job=job, group=group, slot=slot, opened_at=timezone.now(),
            month=timezone.now().date().replace(day=1), key_digest=bytes([slot]),
        )  # fmt: skip

    shown = preview(cast.operator, ("gamma", {"is_draining": True}))

    assert "its episodes get 10 s to end" in shown["phases"][0]["sentence"]
    assert shown["phases"][0]["load"] == 3
    assert shown["machines"][0]["after"]["is_cordoned"], "draining cordons"


def test_a_dry_run_changes_nothing_and_hides_the_jobs_of_others(cast: Cast) -> None:
    running_job(cast)
    cast.outsider.user.is_staff = True
    cast.outsider.user.save()
    outsider = cast.outsider.operating()
    before = (list(Machine.objects.values()), list(Phase.objects.values()), Event.objects.count())

    shown = preview(outsider, ("beta", {"is_draining": True}))

    assert shown["phases"][0]["job_name"] is None
    assert "calculator" not in json.dumps(shown)
    assert "a job of another project" in shown["phases"][0]["sentence"]
    assert before == (list(Machine.objects.values()), list(Phase.objects.values()), Event.objects.count())


def test_a_dry_run_is_for_staff_and_refuses_what_the_edit_would_refuse(cast: Cast) -> None:
    running_job(cast)
    path = f"machines/{machine_id('alpha')}/preview"

    assert cast.member.call("POST", path, {"tags": []}).status_code == 403
    bad: object
    for bad in ({"tags": ["Bad Tag"]}, {"tagz": []}, [1]):
        assert cast.operator.call("POST", path, bad).status_code == 400
    twice = [{"machine_id": machine_id("alpha")}] * 2
    refused = cast.operator.call("POST", "machines/preview", {"edits": twice})
    assert (refused.status_code, b"once" in refused.content) == (400, True)


def test_the_dry_run_agrees_with_what_the_scheduler_does_afterwards(cast: Cast) -> None:
    _, workers = running_job(cast)
    edits: dict[str, dict[str, Any]] = {
        "alpha": {"tags": ["rollout"]},
        "beta": {"tags": ["rollout", "train"]},
        "gamma": {"tags": []},
    }
    shown = preview(cast.operator, *edits.items())

    for name, edit in edits.items():
        response = cast.operator.call(
            "PATCH", f"machines/{machine_id(name)}", {**edit, "reason": "test"}, **{"If-Match": '"1"'}
        )
        assert response.status_code == 200
    for worker in workers.values():
        worker.heartbeat()
    cycle()

    drained = set(Phase.objects.filter(state=PhaseState.DRAINING).values_list("machine__name", flat=True))
    ending = {
        impact["machine"]
        for impact in shown["phases"]
        if impact["impact"] == "drains" and not impact["is_turn"]
    }
    assert drained == ending == {"gamma"}


def test_a_dry_run_gives_the_same_answer_throughout_a_cycle(cast: Cast) -> None:
    """Twenty times, alpha rolls out, trains and rolls out again; requests come and go, and groups
    become ready."""
    job, workers = running_job(cast)
    moments = [
        (role, state, num_ready)
        for num_ready in (0, 4)
        for role in ("rollout", "train")
        for state in (PhaseState.LEASED, PhaseState.STARTING, PhaseState.ACTIVE, PhaseState.DRAINING)
    ]
    Phase.objects.filter(machine=workers["alpha"].machine).update(active_at=timezone.now())
    groups = [group_make(job, index) for index in range(4)]
    browser = Client()
    browser.force_login(cast.owner.user)
    asked = {"edits": [{"machine_id": machine_id("alpha"), "tags": ["rollout"]}]}
    answers = []
    for number, (role, state, num_ready) in enumerate([*moments, *moments[:4]]):
        Phase.objects.filter(machine=workers["alpha"].machine).update(role=role, state=state)
        for index, group in enumerate(groups):
            group.state = "ready" if index < num_ready else "open"
            group.ready_at = timezone.now()
            group.save()
        # The machine was heard just now, however slow this test is.
        MachineHeartbeat.objects.update(num_in_flight=number, received_at=timezone.now())
        shown = json.loads(
            browser.post("/api/v1/machines/preview", asked, content_type="application/json").content
        )
        answers.append((shown["sentences"], [job["after"] for job in shown["jobs"]]))

    assert len(answers) == 20
    assert [answer for answer in answers if answer != answers[0]] == []


def test_the_events_of_a_machine_say_who_edited_it_and_why(cast: Cast) -> None:
    worker_make("alpha", "rollout")
    path = f"machines/{machine_id('alpha')}"

    cast.operator.call("PATCH", path, {"is_cordoned": True, "reason": "new disk"}, **{"If-Match": '"1"'})
    cast.operator.call("PATCH", path, {"is_cordoned": True, "reason": "again"}, **{"If-Match": '"2"'})

    events = json.loads(cast.owner.call("GET", f"{path}/events").content)["results"]
    assert [(event["reason"], event["author"]) for event in events] == [
        ("new disk", "user:olga"),
        ("registered", "system"),
    ]
