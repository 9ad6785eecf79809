"""The queue over REST: it explains, it names nothing of other projects, and what it offers is true."""

import json
from typing import Any

import pytest
from pytest_django import DjangoAssertNumQueries

from seamlessflow.control_plane.cluster.models import Machine
from seamlessflow.control_plane.cluster.services.phases import phase_move
from seamlessflow.control_plane.common.models import Event
from seamlessflow.control_plane.jobs.models import Job
from seamlessflow.control_plane.jobs.submission.submit import job_submit
from seamlessflow.control_plane.scheduling.models import Phase
from seamlessflow.control_plane.scheduling.selectors import queue_keeper
from seamlessflow.control_plane.scheduling.selectors.queue_keeper import QueueKeeper
from seamlessflow.control_plane.scheduling.selectors.snapshot import snapshot_load
from seamlessflow.control_plane.scheduling.services.leases import plan_apply
from seamlessflow.core.lifecycle.jobs import JobState
from seamlessflow.core.lifecycle.phases import PhaseState
from seamlessflow.core.scheduling.explain.unblocks import EVERY_KIND, OPEN_KINDS, UnblockKind
from seamlessflow.core.scheduling.scheduler import decide
from seamlessflow.core.types.ids import IdKind, show_id
from tests.fixtures.control_plane import SYSTEM, Cast, Person, worker_make

pytestmark = pytest.mark.django_db(transaction=True)
EXTERNAL = {"name": "external"}
NUM_QUERIES = 8  # token and user, roles, machines, paces, jobs, grants, failures, the jobs of the page


def cycle() -> None:
    plan_apply(decide(snapshot_load()))


def job_of(cast: Cast, person: Person, name: str, **changes: Any) -> Job:
    spec = cast.spec(name=name, environment=EXTERNAL, **changes)
    return job_submit(project=person.project, user=person.user, submitted=spec, author=SYSTEM)


def full_fleet(cast: Cast, holder: Person | None = None) -> tuple[Job, Job]:
    """A job of another project, or of `holder`, on alpha, the only machine that rolls out; a job that waits; beta can
    only train."""
    worker_make("alpha", "rollout", "train").heartbeat()
    worker_make("beta", "train").heartbeat()
    first = job_of(cast, holder or cast.outsider, "secret")
    cycle()
    for phase in Phase.objects.filter(state=PhaseState.LEASED):
        assert phase_move(phase_id=phase.id, to=PhaseState.ACTIVE, reason="test", author="machine")
    second = job_of(cast, cast.owner, "calculator")
    cycle()
    assert Job.objects.get(id=second.id).state == JobState.QUEUED
    return first, second


def queue(person: Person, query: str = "") -> list[dict[str, Any]]:
    response = person.call("GET", f"queue{query}")
    assert response.status_code == 200, response.content
    page = json.loads(response.content)
    assert page["count"] == len(page["results"])
    return list(page["results"])


def shown(job: Job) -> str:
    return show_id(IdKind.JOB, job.id)


def test_a_waiting_job_is_told_what_it_lacks_who_has_it_and_what_would_help(cast: Cast) -> None:
    _, second = full_fleet(cast)

    (entry,) = queue(cast.member)

    assert (entry["job_id"], entry["place"], entry["lack"], entry["priority"]) == (
        shown(second),
        1,
        "floor",
        0,
    )
    (shortage,) = entry["shortages"]
    assert (shortage["role"], shortage["num_machines"], shortage["num_fitting"]) == ("rollout", 1, 1)
    (holder,) = shortage["holders"]
    assert (holder["machine"], holder["until"]) == ("alpha", "quantum")
    assert 890 < holder["within_s"] <= 900
    kinds = [(offer["kind"], offer["may_do"]) for offer in entry["unblocks"]]
    assert kinds == [("retag", False), ("wait", True)], "a priority takes no machine from another project"
    assert entry["unblocks"][0]["sentence"].startswith(
        "Give beta the tag rollout: the job would begin at once"
    )


def test_nothing_of_another_project_leaks(cast: Cast) -> None:
    first, _ = full_fleet(cast)

    answer = cast.member.call("GET", "queue").content.decode()

    assert "secret" not in answer
    assert shown(first) not in answer
    assert "a job of another project" in answer
    assert queue(cast.outsider) == []
    assert cast.outsider.call("GET", "queue?project=default").status_code == 404


def test_operators_are_told_of_pools_and_members_are_not(cast: Cast) -> None:
    full_fleet(cast)
    worker_make("gamma", "rollout", "train").heartbeat()
    Machine.objects.filter(name="gamma").update(pool="lab")

    assert "lab" not in cast.member.call("GET", "queue").content.decode()
    (entry,) = queue(cast.operator)
    assert [offer["pool"] for offer in entry["unblocks"] if offer["kind"] == "grant"] == ["lab"]


def test_what_is_offered_lets_the_job_begin(cast: Cast) -> None:
    _, second = full_fleet(cast)
    (entry,) = queue(cast.operator)
    offer = entry["unblocks"][0]

    edit = {"tags": [*Machine.objects.get(name="beta").tags, *offer["tags"]], "reason": "the queue said so"}
    answer = cast.operator.call("PATCH", f"machines/{offer['machine_id']}", edit, **{"If-Match": '"1"'})
    assert answer.status_code == 200
    cycle()

    assert Job.objects.get(id=second.id).state == JobState.STARTING
    assert queue(cast.member) == []


def test_the_number_of_queries_does_not_grow_with_the_queue(
    cast: Cast, django_assert_num_queries: DjangoAssertNumQueries
) -> None:
    full_fleet(cast)
    queue(cast.member)  # specs are now kept
    with django_assert_num_queries(NUM_QUERIES):
        queue(cast.member)
    for number in range(4):
        job_of(cast, cast.owner, f"more{number}")
    queue(cast.member)
    with django_assert_num_queries(NUM_QUERIES):
        assert [entry["place"] for entry in queue(cast.member)] == [1, 2, 3, 4, 5]


def priority(person: Person, job: Job, value: int, generation: int | None = None, reason: str = "") -> Any:
    headers = {} if generation is None else {"If-Match": f'"{generation}"'}
    return person.call("PATCH", f"jobs/{shown(job)}", {"priority": value, "reason": reason}, **headers)


def test_a_higher_priority_lets_a_waiting_job_begin(cast: Cast) -> None:
    first, second = full_fleet(cast, cast.member)
    (entry,) = queue(cast.owner)
    (offer,) = (one for one in entry["unblocks"] if one["kind"] == "priority")
    assert (offer["value"], offer["may_do"], offer["num_stopped_jobs"]) == (1, True, 1)

    answer = priority(cast.owner, second, offer["value"], entry["generation"], "a deadline")
    cycle()

    assert answer.status_code == 200
    assert answer.headers["ETag"] == '"2"'
    assert json.loads(answer.content)["priority"] == 1
    assert Job.objects.get(id=second.id).state == JobState.STARTING
    event = Event.objects.get(kind="job.priority")
    assert (event.author, event.reason, event.job_id) == ("user:olga", "a deadline", second.id)
    assert event.data == {"from": 0, "to": 1, "generation": 2}
    assert {phase.state for phase in Phase.objects.filter(job=first)} == {PhaseState.DRAINING}


def test_a_priority_is_changed_by_those_who_may_and_on_the_state_that_they_saw(cast: Cast) -> None:
    job = job_of(cast, cast.owner, "calculator", priority=3)

    assert priority(cast.outsider, job, 1, 1).status_code == 404
    assert priority(cast.member, job, 1, 1).status_code == 403
    assert priority(cast.owner, job, 1).status_code == 428
    assert priority(cast.owner, job, 1, 9).status_code == 412
    assert priority(cast.owner, job, 101, 1).status_code == 400
    assert priority(cast.owner, job, 3, 1).headers["ETag"] == '"1"', "the same priority is no edit"
    assert not Event.objects.filter(kind="job.priority").exists()
    assert priority(cast.owner, job, -5, 1).status_code == 200
    assert snapshot_load().jobs[0].priority == -5
    Job.objects.filter(id=job.id).update(state=JobState.COMPLETED)
    assert priority(cast.owner, job, 1, 2).status_code == 409


def test_what_took_long_is_kept_for_all_readers_and_what_is_cheap_is_not(
    cast: Cast, monkeypatch: pytest.MonkeyPatch
) -> None:
    full_fleet(cast)
    assert QueueKeeper().current().is_over, "a few milliseconds"

    monkeypatch.setattr(queue_keeper, "CHEAP_S", 0.0)
    monkeypatch.setattr(queue_keeper, "KEPT_FACTOR", 1e6)
    keeper = QueueKeeper()
    kept = keeper.current()
    (entry,) = kept.queue.entries
    assert kept.unblocks(entry, OPEN_KINDS) is kept.unblocks(entry, OPEN_KINDS)
    assert {one.kind for one in kept.unblocks(entry, EVERY_KIND)} >= {UnblockKind.RETAG}
    assert keeper.current() is kept
    monkeypatch.setattr(queue_keeper, "KEPT_FACTOR", 0.0)
    assert keeper.current() is not kept
