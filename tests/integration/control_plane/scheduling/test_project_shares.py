"""Shares and pools over REST: who reads and edits them, what an edit does and records, what the ledger adds up to."""

import json
import math
from datetime import timedelta
from typing import Any

import pytest
from django.contrib.auth import get_user_model
from django.test import Client
from pytest_django import DjangoAssertNumQueries, Settings

from seamlessflow.control_plane.accounts.models import Project
from seamlessflow.control_plane.cluster.models import Machine, PoolGrant
from seamlessflow.control_plane.common.database.clock import database_now
from seamlessflow.control_plane.common.models import Event
from seamlessflow.control_plane.jobs.models import Job
from seamlessflow.control_plane.scheduling.models import Phase
from seamlessflow.control_plane.scheduling.selectors import queue_keeper
from seamlessflow.control_plane.scheduling.selectors.snapshot import snapshot_load
from seamlessflow.control_plane.telemetry.models import LedgerInterval
from seamlessflow.control_plane.telemetry.selectors.project_time import project_seconds
from seamlessflow.core.lifecycle.jobs import JobState
from seamlessflow.core.lifecycle.phases import PhaseState
from seamlessflow.core.types.ids import IdKind, show_id
from tests.fixtures.control_plane import Cast, Person, worker_make
from tests.integration.control_plane.scheduling.test_queue import cycle, full_fleet, job_of

pytestmark = pytest.mark.django_db(transaction=True)
NUM_QUERIES = 10


@pytest.fixture(autouse=True)
def _every_queue_is_read_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    """A busy machine can make one look expensive, and the next test would then see it."""
    monkeypatch.setattr(queue_keeper, "CHEAP_S", math.inf)


def rows(person: Person, path: str) -> list[dict[str, Any]]:
    response = person.call("GET", path)
    assert response.status_code == 200, response.content
    return list(json.loads(response.content)["results"])


def test_members_see_their_own_share_and_operators_see_all(cast: Cast) -> None:
    full_fleet(cast)

    (own,) = rows(cast.member, "shares")
    assert (own["project"], own["weight"], own["machine_quota"]) == ("default", 1.0, None)
    assert (own["entitled"], own["num_held"], own["is_short"]) == (1.0, 0, True)
    both = {row["project"]: row for row in rows(cast.operator, "shares")}
    assert (both["elsewhere"]["entitled"], both["elsewhere"]["num_held"]) == (1.0, 2)
    assert both["elsewhere"]["num_agent_slots"] == 0
    assert both["elsewhere"]["num_borrowed"] == 1.0


def test_a_share_is_edited_by_operators_and_each_edit_leaves_an_event(cast: Cast) -> None:
    def edit(person: Person, slug: str = "elsewhere", **body: Any) -> Any:
        return person.call("PATCH", f"shares/{slug}", {"reason": "a deadline"} | body)

    full_fleet(cast)
    assert edit(cast.owner, slug="default", weight=3.0).status_code == 403, "an owner's token of a project"
    assert edit(cast.owner, weight=3.0).status_code == 404, "a project that the owner cannot see"
    assert edit(cast.outsider, weight=3.0).status_code == 403
    assert edit(cast.operator, weight=0).status_code == 400
    assert edit(cast.operator, slug="nowhere", weight=3.0).status_code == 404
    assert cast.operator.call("PATCH", "shares/elsewhere", {"weight": 3.0}).status_code == 400, "no reason"

    answer = json.loads(edit(cast.operator, weight=3.0, machine_quota=1).content)
    edit(cast.operator, weight=3.0)

    assert (answer["weight"], answer["machine_quota"], answer["entitled"]) == (3.0, 1, 1.0)
    event = Event.objects.get(kind="project.share")
    assert (event.author, event.reason, event.project_id) == (
        "user:olga",
        "a deadline",
        cast.outsider.project.id,
    )
    assert event.data == {
        "before": {"weight": 1.0, "machine_quota": None},
        "after": {"weight": 3.0, "machine_quota": 1},
    }
    cycle()
    assert Phase.objects.filter(state=PhaseState.DRAINING).exists(), "the project holds two machines"
    assert edit(cast.operator, priority_ceiling=101).status_code == 400
    raised = json.loads(edit(cast.operator, priority_ceiling=10, queued_jobs_quota=5).content)
    assert (raised["priority_ceiling"], raised["queued_jobs_quota"]) == (10, 5)
    assert {job.priority_ceiling for job in snapshot_load().jobs} == {0, 10}, "the scheduler reads it"
    edit(cast.operator, machine_quota=None)
    assert Project.objects.get(slug="elsewhere").machine_quota is None


def test_the_seconds_of_a_project_are_those_of_its_intervals_within_the_span(cast: Cast) -> None:
    alpha = worker_make("alpha", "rollout").machine
    until = database_now()
    since = until - timedelta(hours=1)

    def interval(start_min: int, end_min: int, project: Project | None) -> None:
        LedgerInterval.objects.create(
            machine=alpha, project=project, state="serving",
            started_at=until - timedelta(minutes=start_min), ended_at=until - timedelta(minutes=end_min),
        )  # fmt: skip

    own, others = cast.owner.project, cast.outsider.project
    interval(80, 50, own)
    interval(50, 40, None)
    interval(40, 30, others)
    interval(30, 20, own)

    seconds = project_seconds(project_ids=[own.id], since=since, until=until)
    assert seconds == {own.id: pytest.approx(20 * 60.0)}


def test_the_number_of_queries_does_not_grow_with_the_projects(
    cast: Cast, django_assert_num_queries: DjangoAssertNumQueries
) -> None:
    operator = cast.operator
    full_fleet(cast)
    rows(operator, "shares")
    with django_assert_num_queries(NUM_QUERIES):
        rows(operator, "shares")
    for number in range(5):
        Project.objects.create(slug=f"p{number}", name="P")
    with django_assert_num_queries(NUM_QUERIES):
        assert len(rows(operator, "shares")) == 7


def test_a_granted_pool_lets_a_waiting_job_begin_and_a_revoked_one_ends_its_work(cast: Cast) -> None:
    worker_make("gamma", "rollout", "train").heartbeat()
    Machine.objects.update(pool="lab")
    job = job_of(cast, cast.owner, "calculator")
    path = f"pools/lab/grants/{cast.owner.project.slug}"
    assert cast.owner.call("PUT", path, {}).status_code == 403
    assert cast.operator.call("PUT", "pools/empty/grants/default", {}).status_code == 404
    assert cast.operator.call("PUT", "pools/lab/grants/nowhere", {}).status_code == 404
    assert rows(cast.member, "pools") == [
        {"name": "default", "num_machines": 0, "is_open": True, "projects": []}
    ]
    cycle()
    assert not Phase.objects.exists()

    for _ in range(2):
        assert cast.operator.call("PUT", path, {"reason": "they asked"}).status_code == 204
    cycle()

    assert Phase.objects.get(job=job).machine.name == "gamma"
    assert rows(cast.member, "pools")[1] == {
        "name": "lab", "num_machines": 1, "is_open": False, "projects": ["default"]
    }  # fmt: skip
    for _ in range(2):
        assert cast.operator.call("DELETE", f"{path}?reason=over").status_code == 204
    cycle()
    assert Phase.objects.get(job=job).state == PhaseState.DRAINING
    told = Event.objects.filter(kind__startswith="pool.").values_list("kind", "reason", "data")
    assert list(told) == [
        ("pool.granted", "they asked", {"pool": "lab"}),
        ("pool.revoked", "over", {"pool": "lab"}),
    ]


def test_members_do_not_learn_who_else_may_use_a_pool(cast: Cast) -> None:
    for project in (cast.owner.project, cast.outsider.project):
        PoolGrant.objects.create(pool="default", project=project)
    assert [pool["projects"] for pool in rows(cast.member, "pools")] == [["default"]]
    assert [pool["projects"] for pool in rows(cast.operator, "pools")] == [["default", "elsewhere"]]


def test_a_project_has_no_more_jobs_in_the_queue_than_its_ceiling(cast: Cast, settings: Settings) -> None:
    def submit(person: Person) -> tuple[int, str]:
        answer = person.call("POST", "jobs", cast.spec())
        return answer.status_code, answer.content.decode()

    settings.MAX_QUEUED_JOBS = 1
    assert submit(cast.owner)[0] == 201
    status, text = submit(cast.member)
    assert status == 429
    assert "the project default has 1 jobs in the queue" in text
    assert "queued_jobs_quota" in text
    assert Job.objects.filter(project=cast.owner.project).count() == 1
    assert submit(cast.outsider)[0] == 201, "each project has its own"

    Project.objects.filter(slug="default").update(queued_jobs_quota=2)
    assert submit(cast.member)[0] == 201, "an operator raised the ceiling"
    assert submit(cast.member)[0] == 429
    Job.objects.filter(project=cast.owner.project).update(state=JobState.RUNNING)
    assert submit(cast.member)[0] == 201, "jobs at work are not in the queue"


def test_edits_in_the_admin_site_leave_the_same_events(cast: Cast) -> None:
    root = get_user_model().objects.create_superuser(username="root")
    site = Client()
    site.force_login(root)
    project = cast.owner.project
    form = {
        "slug": project.slug, "name": project.name, "weight": "2.5", "machine_quota": "",
        "priority_ceiling": "0", "queued_jobs_quota": "", "memberships-TOTAL_FORMS": 0, "memberships-INITIAL_FORMS": 0,
    }  # fmt: skip
    assert site.post(f"/admin/accounts/project/{project.id}/change/", form).status_code == 302
    add = {"pool": "lab", "project": str(project.id)}
    assert site.post("/admin/cluster/poolgrant/add/", add).status_code == 302
    grant = PoolGrant.objects.get()
    assert site.post(f"/admin/cluster/poolgrant/{grant.id}/delete/", {"post": "yes"}).status_code == 302

    told = Event.objects.filter(author="user:root").order_by("id").values_list("kind", "data")
    assert list(told) == [
        ("project.share", {"before": {"weight": 1.0}, "after": {"weight": 2.5}}),
        ("pool.granted", {"pool": "lab"}),
        ("pool.revoked", {"pool": "lab"}),
    ]


def test_a_machine_that_moves_to_another_pool_leaves_the_jobs_that_may_not_use_it(cast: Cast) -> None:
    worker_make("gamma", "rollout", "train").heartbeat()
    job = job_of(cast, cast.owner, "calculator")
    cycle()
    machine = Phase.objects.get(job=job).machine
    path = f"machines/{show_id(IdKind.MACHINE, machine.id)}"
    edit = {"pool": "lab", "reason": "theirs"}

    told = json.loads(cast.operator.call("POST", f"{path}/preview", {"pool": "lab"}).content)
    assert cast.owner.call("PATCH", path, edit, **{"If-Match": '"1"'}).status_code == 403
    assert (
        cast.operator.call("PATCH", path, edit | {"pool": "no pool"}, **{"If-Match": '"1"'}).status_code
        == 400
    )
    assert cast.operator.call("PATCH", path, edit, **{"If-Match": '"1"'}).status_code == 200
    cycle()

    assert "the pool lab, which the job's project may not use" in told["sentences"][0]
    assert Phase.objects.get(job=job).state == PhaseState.DRAINING
    assert cast.member.call("GET", path).status_code == 404


def test_a_machine_counts_in_shares_what_an_operator_says(cast: Cast) -> None:
    worker_make("gamma", "rollout", "train").heartbeat()
    job_of(cast, cast.owner, "calculator")
    path = f"machines/{show_id(IdKind.MACHINE, Machine.objects.get(name='gamma').id)}"
    edit, etag = {"cost": 3.0, "reason": "eight cards"}, {"If-Match": '"1"'}
    assert cast.owner.call("PATCH", path, edit, **etag).status_code == 403
    refused = cast.operator.call("PATCH", path, edit | {"cost": 0}, **etag)
    assert refused.status_code == 400
    assert b"0 is not accepted; accepted: 0.01 to 1000" in refused.content
    assert cast.operator.call("POST", f"{path}/preview", {"cost": -1}).status_code == 400
    told = json.loads(cast.operator.call("POST", f"{path}/preview", {"cost": 3.0}).content)
    assert [one["after"]["cost"] for one in told["machines"]] == [3.0]
    assert json.loads(cast.operator.call("PATCH", path, edit, **etag).content)["cost"] == 3.0
    (gamma,) = [one for one in snapshot_load().machines if one.name == "gamma"]
    assert gamma.cost == 3.0
