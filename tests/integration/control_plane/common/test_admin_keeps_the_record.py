"""The admin site keeps what the audit trail refers to, and finds it by the ids that people see."""

import pytest
from django.test import Client

from seamlessflow.control_plane.accounts.models import Project, User
from seamlessflow.control_plane.cluster.models import Machine
from seamlessflow.control_plane.common.models import Event
from seamlessflow.core.types.ids import IdKind, show_id
from tests.fixtures.control_plane import Cast, worker_make

EVENTS = "/admin/common/event/"


@pytest.fixture
def browser(cast: Cast) -> Client:
    cast.owner.user.is_superuser = cast.owner.user.is_staff = True
    cast.owner.user.save()
    browser = Client()
    browser.force_login(cast.owner.user)
    return browser


@pytest.fixture
def machine() -> Machine:
    return worker_make("alpha", "rollout", "train").machine


@pytest.mark.parametrize(
    "model, page",
    [(Machine, "cluster/machine"), (Project, "accounts/project"), (User, "accounts/user")],
)
def test_nothing_that_events_refer_to_can_be_deleted(
    model: type[Machine | Project | User], page: str, browser: Client, machine: Machine
) -> None:
    row = model._default_manager.all()[0]
    num_rows, num_events = model._default_manager.count(), Event.objects.count()

    listed = browser.get(f"/admin/{page}/")
    alone = browser.post(f"/admin/{page}/{row.pk}/delete/", {"post": "yes"})
    many = {"action": "delete_selected", "_selected_action": [str(row.pk)], "post": "yes"}
    browser.post(f"/admin/{page}/", many)

    assert listed.status_code == 200
    assert "delete_selected" not in listed.content.decode()
    assert alone.status_code == 403
    assert (model._default_manager.count(), Event.objects.count()) == (num_rows, num_events)


def test_events_are_found_by_the_id_that_people_see(browser: Client, machine: Machine) -> None:
    other = worker_make("beta", "agent").machine
    shown = show_id(IdKind.MACHINE, machine.id)

    found = browser.get(EVENTS, {"q": shown}).context["cl"].queryset
    unknown = browser.get(EVENTS, {"q": "mac_nonsense"}).context["cl"].queryset

    assert {event.subject_id for event in found} == {machine.id}
    assert other.id not in {event.subject_id for event in found}
    assert list(unknown) == []


def test_the_newest_event_comes_first_and_shows_seconds(browser: Client, machine: Machine) -> None:
    page = browser.get(EVENTS)
    events = list(page.context["cl"].queryset)

    assert [event.id for event in events] == sorted((event.id for event in events), reverse=True)
    assert events[0].at.strftime("%H:%M:%S") in page.content.decode()
