"""Every write of the admin site and of REST leaves an event that says who did it.

The writes come from the registered pages and from the declarations of the handlers, so a new one without a row
here fails.
"""

import io
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import pytest
from django.contrib import admin
from django.db import transaction
from django.forms import BaseForm, MultiWidget
from django.test import Client, RequestFactory
from django.utils import timezone

from seamlessflow.control_plane.accounts.models import Token, User
from seamlessflow.control_plane.accounts.services.people import api_token_create
from seamlessflow.control_plane.cluster.models import Machine, PoolGrant
from seamlessflow.control_plane.common.models import Event
from seamlessflow.control_plane.jobs.models import Job
from seamlessflow.control_plane.policies.models import PolicyVersion
from seamlessflow.control_plane.scheduling.models import MachineJudgement
from seamlessflow.control_plane.storage.models import RetentionPolicy
from seamlessflow.core.access.routes import API
from seamlessflow.core.types.ids import IdKind, show_id
from tests.fixtures.control_plane import Cast, Person, worker_make
from tests.fixtures.web_routes import operations_declared

PASSWORD = "a-long-enough-password"
NEW_PASSWORD = {"password1": PASSWORD + "2", "password2": PASSWORD + "2"}


@dataclass(frozen=True, slots=True)
class World:
    """One row of each kind that can be written."""

    cast: Cast
    root: User
    job: Job
    machine: Machine
    grant: PoolGrant
    token: Token
    versions: tuple[PolicyVersion, PolicyVersion]  # the second is pinned
    policy: RetentionPolicy
    browser: Client
    operator: Person

    def add(self, page: str, **values: Any) -> None:
        self.send(f"/admin/{page}/add/", values)

    def change(self, page: str, row: Any, **values: Any) -> None:
        self.send(f"/admin/{page}/{row.pk}/change/", values)

    def delete(self, page: str, row: Any) -> None:
        assert self.browser.post(f"/admin/{page}/{row.pk}/delete/", {"post": "yes"}).status_code == 302

    def act(self, page: str, action: str, row: Any, **values: str) -> None:
        body = {"action": action, "_selected_action": [str(row.pk)], "reason": "test", "post": "yes"} | values
        assert self.browser.post(f"/admin/{page}/", body).status_code == 302

    def edit_machines(self, action: str, **values: str) -> None:
        """Send the page between an action and its effect."""
        seen = {f"seen_{self.machine.pk}": str(self.machine.generation), "step": "apply"}
        fields = {"work": action, "add": ""} | values
        seen["seen_edit"] = f"+{fields['add']} - {fields['work']}"
        self.act("cluster/machine", action, self.machine, **fields, **seen)

    def send(self, path: str, values: Mapping[str, Any]) -> None:
        """Send the form of a page as it is shown, with other values for some fields."""
        page = self.browser.get(path)
        shown = dict(posted(forms_of(page)))
        answer = self.browser.post(path, shown | dict(values))
        assert answer.status_code == 302, answer.context["errors"]


def forms_of(page: Any) -> Iterator[BaseForm]:
    yield page.context["adminform"].form
    for inline in page.context["inline_admin_formsets"]:
        yield inline.formset.management_form
        yield from inline.formset.forms


def posted(forms: Iterator[BaseForm]) -> Iterator[tuple[str, Any]]:
    """Yield what a browser sends for the forms."""
    for bound in (bound for form in forms for bound in form):
        value, widget = bound.value(), bound.field.widget
        if isinstance(widget, MultiWidget):
            for index, part in enumerate(widget.decompress(value) or ()):
                yield f"{bound.html_name}_{index}", "" if part is None else str(part)
        elif value is not None and value is not False:
            yield bound.html_name, value


@pytest.fixture
def world(cast: Cast) -> World:
    root = User.objects.create_superuser("root", password=PASSWORD)
    job = cast.job(
        is_running=True, algorithm={"name": "grpo", "stages": [{"name": "first"}, {"name": "second"}]}
    )
    machine = worker_make("alpha", "rollout").machine
    Machine.objects.filter(id=machine.id).update(pool="private")
    MachineJudgement.objects.create(
        machine=machine, quarantined_at=timezone.now(), until_at=timezone.now(), reason="test", judged_fence=1
    )
    grant = PoolGrant.objects.create(pool="private", project=cast.owner.project)
    token, _ = api_token_create(user=cast.member.user, project=cast.owner.project, name="x", author="test")
    one, two = (
        PolicyVersion.objects.create(
            project_id=job.project_id, job=job, version=number, batch_number=number, uri=f"file:///{number}",
            is_pinned=number == 2, published_at=timezone.now(),
        )
        for number in (1, 2)
    )  # fmt: skip
    policy = RetentionPolicy.objects.create(project=cast.outsider.project, settings={"logs_days": 3})
    browser = Client()
    browser.force_login(root)
    machine.refresh_from_db()
    return World(cast, root, job, machine, grant, token, (one, two), policy, browser, cast.operator)


Write = Callable[[World], None]


def resume(world: World) -> None:
    world.act("jobs/job", "pause", world.job)
    world.act("jobs/job", "resume", world.job)


# What a write does, and the kinds of the events that it leaves.
ADMIN: Mapping[tuple[str, str], tuple[Write, set[str]]] = {
    ("accounts/user", "add"): (
        lambda w: w.add("accounts/user", username="nina", usable_password="true", **NEW_PASSWORD),
        {"account.created"},
    ),
    ("accounts/user", "change"): (
        lambda w: w.change("accounts/user", w.cast.member.user, email="m@example.org", is_staff="on"),
        {"account.edited"},
    ),
    ("accounts/project", "add"): (
        lambda w: w.add("accounts/project", slug="new", name="New"),
        {"project.created", "member.added"},
    ),
    ("accounts/project", "change"): (
        lambda w: w.change("accounts/project", w.cast.owner.project, weight="3", name="Renamed"),
        {"project.share", "project.edited"},
    ),
    ("accounts/token", "revoke"): (lambda w: w.act("accounts/token", "revoke", w.token), {"token.revoked"}),
    ("cluster/poolgrant", "add"): (
        lambda w: w.add("cluster/poolgrant", pool="private", project=str(w.cast.outsider.project.pk)),
        {"pool.granted"},
    ),
    ("cluster/poolgrant", "delete"): (lambda w: w.delete("cluster/poolgrant", w.grant), {"pool.revoked"}),
    ("cluster/poolgrant", "delete_selected"): (
        lambda w: w.act("cluster/poolgrant", "delete_selected", w.grant),
        {"pool.revoked"},
    ),
    ("cluster/machine", "change"): (
        lambda w: w.change("cluster/machine", w.machine, tags="train", is_released="on", reason="test"),
        {"machine.edited", "machine.released"},
    ),
    ("cluster/machine", "retag"): (
        lambda w: w.edit_machines("retag", work="leave", add="train"), {"machine.edited"},
    ),
    ("cluster/machine", "cordon"): (lambda w: w.edit_machines("cordon"), {"machine.edited"}),
    ("cluster/machine", "drain"): (lambda w: w.edit_machines("drain"), {"machine.edited"}),
    ("cluster/machine", "uncordon"): (
        lambda w: w.edit_machines("uncordon", work="take", add="train"), {"machine.edited"},
    ),
    ("jobs/job", "pause"): (lambda w: w.act("jobs/job", "pause", w.job), {"job.desired"}),
    ("jobs/job", "resume"): (
        resume,
        {"job.desired"},
    ),
    ("jobs/job", "cancel"): (lambda w: w.act("jobs/job", "cancel", w.job), {"job.desired"}),
    ("policies/policyversion", "pin"): (
        lambda w: w.act("policies/policyversion", "pin", w.versions[0]), {"version.pinned"},
    ),
    ("policies/policyversion", "unpin"): (
        lambda w: w.act("policies/policyversion", "unpin", w.versions[1]), {"version.unpinned"},
    ),
    ("storage/retentionpolicy", "add"): (
        lambda w: w.add("storage/retentionpolicy", project=str(w.cast.owner.project.pk), settings='{"logs_days": 9}'),
        {"retention.edited"},
    ),
    ("storage/retentionpolicy", "change"): (
        lambda w: w.change("storage/retentionpolicy", w.policy, settings="{}"), {"retention.edited"},
    ),
}  # fmt: skip


def admin_writes(user: User) -> Iterator[tuple[str, str]]:
    """Yield each way in which a superuser can write on a page of the admin site."""
    request = RequestFactory().get("/")
    request.user = user
    for model, page in admin.site._registry.items():
        path = f"{model._meta.app_label}/{model._meta.model_name}"
        for write in ("add", "change", "delete"):
            if getattr(page, f"has_{write}_permission")(request):
                yield path, write
        for action in page.get_actions(request):
            yield path, action


def new_events(write: Callable[[], object]) -> list[Event]:
    """Return the events of a write, and undo it."""
    newest = Event.objects.order_by("-id").values_list("id", flat=True).first() or 0
    with transaction.atomic():
        write()
        events = list(Event.objects.filter(id__gt=newest))
        transaction.set_rollback(True)
    return events


def test_each_write_of_the_admin_site_leaves_events_of_its_author(world: World) -> None:
    found = set(admin_writes(world.root))
    assert found == set(ADMIN), "give the table of this test a row for each write"

    left = {key: new_events(partial(write, world)) for key, (write, _) in ADMIN.items()}

    assert {key: {event.kind for event in events} for key, events in left.items()} == {
        key: kinds for key, (_, kinds) in ADMIN.items()
    }
    assert {event.author for events in left.values() for event in events} == {"user:root"}
    edits = [
        event for events in left.values() for event in events if event.kind.endswith(("edited", "share"))
    ]
    assert all(event.data["before"] != event.data["after"] for event in edits)
    assert PASSWORD not in str([event.data for events in left.values() for event in events])


def membership(world: World, name: str, number: int = 0, **fields: str) -> dict[str, str]:
    """Return what the Project page sends of one member."""
    one = world.cast.owner.project.memberships.get(user__username=name)
    row = {"id": str(one.pk), "user": str(one.user_id), "role": one.role, "project": str(one.project_id)}
    return {f"memberships-{number}-{field}": value for field, value in (row | fields).items()}


def edit_members(world: World, *rows: dict[str, str]) -> tuple[list[Event], str]:
    project, said = world.cast.owner.project, []
    body = {"slug": project.slug, "name": project.name, "weight": "1", "priority_ceiling": "0"}
    counts = {"memberships-TOTAL_FORMS": str(len(rows)), "memberships-INITIAL_FORMS": str(len(rows))}
    for row in rows:
        body |= row

    def post() -> None:
        path = f"/admin/accounts/project/{project.pk}/change/"
        said.append(world.browser.post(path, body | counts, follow=True).content.decode())
        said.append(str(sorted(project.memberships.values_list("user__username", "role"))))
        said.append(str(world.cast.member.call("GET", "jobs").status_code))

    events = new_events(post)
    return events, "\n".join(said)


def test_members_are_edited_on_the_project_s_page_as_over_rest(world: World) -> None:
    removed, said = edit_members(world, membership(world, "mira", DELETE="on"))
    assert said.endswith("[('olga', 'owner')]\n401"), "her tokens end with her membership"
    assert {event.kind for event in removed} == {"member.removed", "token.revoked"}
    assert removed[-1].data == {"username": "mira", "before": "member"}

    swapped, said = edit_members(
        world, membership(world, "olga", role="viewer"), membership(world, "mira", 1, role="owner")
    )
    assert "[('mira', 'owner'), ('olga', 'viewer')]" in said, "whoever replaces the last owner comes first"
    assert [event.data["before"] for event in swapped] == ["member", "owner"]


def test_a_membership_cannot_become_that_of_another_person(world: World) -> None:
    other = str(world.cast.outsider.user.pk)

    events, said = edit_members(world, membership(world, "mira", user=other))

    assert (events, "Remove this member and add the other." in said) == ([], True)


@pytest.mark.parametrize("change", [{"DELETE": "on"}, {"role": "viewer"}], ids=str)
def test_the_last_owner_stays_on_the_project_s_page(world: World, change: dict[str, str]) -> None:
    events, said = edit_members(world, membership(world, "olga", 0, **change))

    assert (events, "('olga', 'owner')" in said) == ([], True)
    assert "is the last owner of the project" in said


def test_an_account_that_is_the_last_owner_cannot_be_closed(world: World) -> None:
    def close() -> None:
        path = f"/admin/accounts/user/{world.cast.outsider.user.pk}/change/"
        shown = dict(posted(forms_of(world.browser.get(path))))
        shown.pop("is_active")
        assert "last owner of the project" in world.browser.post(path, shown, follow=True).content.decode()

    assert new_events(close) == []
    assert User.objects.get(pk=world.cast.outsider.user.pk).is_active


def test_a_password_that_somebody_sets_leaves_an_event_without_it(world: World) -> None:
    body = {"usable_password": "true"} | NEW_PASSWORD
    path = f"/admin/accounts/user/{world.cast.member.user.pk}/password/"
    own = {"old_password": PASSWORD, "new_password1": PASSWORD + "2", "new_password2": PASSWORD + "2"}

    events = new_events(lambda: world.browser.post(path, body))
    world.browser.force_login(world.root)
    events += new_events(lambda: world.browser.post("/admin/password_change/", own))

    assert [(event.kind, event.author, event.data["username"]) for event in events] == [
        ("account.password_set", "user:root", "mira"),
        ("account.password_set", "user:root", "root"),
    ]
    assert PASSWORD not in str([event.data for event in events])


def rest_bodies(world: World) -> Mapping[tuple[str, str], tuple[Any, set[str]]]:
    """Return a body for each write of REST, and the events that it leaves; a row without events says why."""
    nothing: set[str] = set()
    machine = {"reason": "test", "is_draining": True}
    return {
        ("POST", "jobs"): (world.cast.spec(name="another"), {"job.state"}),
        ("PATCH", "jobs/<job:job_id>"): ({"priority": 5}, {"job.priority"}),
        ("POST", "jobs/<job:job_id>/cancel"): ({}, {"job.desired"}),
        ("POST", "jobs/<job:job_id>/pause"): ({}, {"job.desired"}),
        ("POST", "jobs/<job:job_id>/resume"): ({}, nothing),  # it runs, so nothing changes
        ("POST", "jobs/<job:job_id>/stage"): ({"stage": "second"}, {"job.stage"}),
        ("POST", "uploads"): (None, {"artifact.created"}),
        ("POST", "storage/deletions"): ({"items": []}, nothing),  # test_retention.py looks at its events
        ("PATCH", "storage/policy"): ({"settings": {"logs_days": 9}, "reset": []}, {"retention.edited"}),
        ("PUT", "pools/<slug:pool>/grants/<slug:slug>"): ({}, {"pool.granted", "pool.revoked"}),
        ("DELETE", "pools/<slug:pool>/grants/<slug:slug>"): ({}, {"pool.revoked"}),
        ("PATCH", "shares/<slug:slug>"): ({"weight": 2.0, "reason": "test"}, {"project.share"}),
        ("POST", "machines"): ({"name": "beta", "tags": ["train"]}, {"machine.registered", "token.created"}),
        ("PATCH", "machines/<machine:machine_id>"): (machine, {"machine.edited"}),
        ("POST", "machines/preview"): ({"edits": []}, nothing),  # a dry run
        ("POST", "machines/<machine:machine_id>/preview"): ({}, nothing),  # a dry run
        ("POST", "machines/<machine:machine_id>/release"): ({"reason": "test"}, {"machine.released"}),
        ("POST", "projects/<slug:slug>/members"): ({"username": "otto"}, {"member.added"}),
        ("PATCH", "projects/<slug:slug>/members/<str:username>"): ({"role": "viewer"}, {"member.changed"}),
        ("DELETE", "projects/<slug:slug>/members/<str:username>"): ({}, {"member.removed", "token.revoked"}),
        ("POST", "tokens"): ({"name": "new", "project": "default"}, {"token.created"}),
        ("DELETE", "tokens/<token:token_id>"): ({}, {"token.revoked"}),
    }


def test_each_write_of_rest_leaves_events_of_its_author(world: World) -> None:
    writes = {(method, route.removeprefix(API)) for method, route in operations_declared() if method != "GET"}
    bodies = rest_bodies(world)
    assert writes == set(bodies), "give the table of this test a row for each write"

    left = {key: new_events(partial(call, world, *key, bodies[key][0])) for key in bodies}

    assert {key: {event.kind for event in events} for key, events in left.items()} == {
        key: kinds for key, (_, kinds) in bodies.items()
    }
    assert {event.author for events in left.values() for event in events} == {"user:olga"}


def call(world: World, method: str, route: str, body: Any) -> None:
    values = {
        "<job:job_id>": show_id(IdKind.JOB, world.job.id),
        "<machine:machine_id>": show_id(IdKind.MACHINE, world.machine.id),
        "<token:token_id>": show_id(IdKind.TOKEN, world.token.id),
        "<slug:pool>": "private",
        "<slug:slug>": "default",
        "<str:username>": "mira",
    }
    for name, value in values.items():
        route = route.replace(name, value)
    person = world.operator
    if method == "PUT":
        person.call("DELETE", route)
    if route == "uploads":
        headers = {"Authorization": f"Bearer {person.secret}"}
        Client().post("/api/v1/uploads", {"file": io.BytesIO(b"{}")}, headers=headers)
    else:
        generation = world.machine.generation if "machine" in route else world.job.generation
        person.call(method, route, body, **{"If-Match": f'"{generation}"'})
