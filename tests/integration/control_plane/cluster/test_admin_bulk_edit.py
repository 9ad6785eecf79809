"""Editing several machines in the admin site: form, dry run, then all edits or none."""

import re

import pytest
from django.http import HttpResponse
from django.test import Client

from seamlessflow.control_plane.cluster.models import Machine
from seamlessflow.control_plane.cluster.services.machines import machine_edit
from seamlessflow.control_plane.common.models import Event
from seamlessflow.core.types.desired_state import MachineEdit
from tests.fixtures.control_plane import Cast, worker_make

URL = "/admin/cluster/machine/"


@pytest.fixture
def browser(cast: Cast) -> Client:
    cast.owner.user.is_superuser = True
    cast.owner.user.save()
    browser = Client()
    browser.force_login(cast.owner.user)
    return browser


@pytest.fixture
def machines(cast: Cast) -> list[Machine]:
    return [worker_make("alpha", "rollout", "train").machine, worker_make("beta", "rollout").machine]


def post(browser: Client, machines: list[Machine], action: str = "retag", **fields: str) -> HttpResponse:
    chosen = {"action": action, "_selected_action": [str(machine.id) for machine in machines]}
    response: HttpResponse = browser.post(URL, chosen | fields)  # type: ignore[assignment]
    return response


def hidden(page: HttpResponse) -> dict[str, str]:
    """Return the hidden fields that the dry run's page passes on to the edit."""
    return dict(re.findall(r'name="(seen_[^"]+)" value="([^"]*)"', page.content.decode()))


def test_a_retag_shows_the_dry_run_and_then_edits_all(browser: Client, machines: list[Machine]) -> None:
    fields = {"add": "big", "remove": "train", "work": "drain", "reason": "night shift"}

    asked = post(browser, machines)
    shown = post(browser, machines, step="preview", **fields)
    unchanged = list(Machine.objects.values_list("generation", flat=True))
    done = post(browser, machines, step="apply", **fields, **hidden(shown))

    assert b"Show what would happen" in asked.content
    assert "alpha: {rollout, train} → {big, rollout}, draining" in shown.content.decode()
    assert unchanged == [1, 1]
    assert done.status_code == 302
    assert [(m.tags, m.is_draining, m.generation) for m in Machine.objects.all()] == [
        (["big", "rollout"], True, 2),
        (["big", "rollout"], True, 2),
    ]
    reasons = Event.objects.filter(kind="machine.edited").values_list("reason", "author")
    assert list(reasons) == [("night shift", "user:olga")] * 2


def test_a_machine_edited_after_the_dry_run_stops_all_edits(browser: Client, machines: list[Machine]) -> None:
    fields = {"work": "cordon", "reason": "night"}
    shown = post(browser, machines, "cordon", step="preview", **fields)
    machine_edit(machine_id=machines[1].id, edit=MachineEdit(tags=["agent"]), reason="b", author="user:x")

    refused = post(browser, machines, "cordon", step="apply", **fields, **hidden(shown))

    assert b"the machine is at generation 2, not 1" in refused.content
    assert not Machine.objects.filter(is_cordoned=True).exists()
    assert post(browser, machines, "cordon", step="apply", **fields, **hidden(refused)).status_code == 302
    assert Machine.objects.filter(is_cordoned=True).count() == 2


def test_only_what_was_shown_is_applied(browser: Client, machines: list[Machine]) -> None:
    shown = post(browser, machines, step="preview", work="cordon", reason="night")

    unseen = post(browser, machines, step="apply", work="cordon", reason="night")
    other = post(browser, machines, step="apply", work="drain", reason="night", **hidden(shown))

    for page in (unseen, other):
        assert b"Check the preview" in page.content
    assert not Machine.objects.filter(is_cordoned=True).exists()


@pytest.mark.parametrize(
    "fields,word",
    [
        ({"work": "cordon"}, "This field is required"),
        ({"work": "leave", "reason": "r", "add": "Bad!"}, "must match"),
        ({"work": "leave", "reason": "r", "add": "gpu", "remove": "gpu"}, "both added and removed"),
    ],
)
def test_a_bad_edit_is_named_on_the_form(
    browser: Client, machines: list[Machine], fields: dict[str, str], word: str
) -> None:
    assert word in post(browser, machines, step="preview", **fields).content.decode()


def test_undoing_a_drain_lets_machines_work_again(browser: Client, machines: list[Machine]) -> None:
    machine_edit(machine_id=machines[0].id, edit=MachineEdit(is_draining=True), reason="r", author="user:x")
    fields = {"work": "take", "reason": "back"}

    shown = post(browser, machines[:1], "uncordon", step="preview", **fields)
    post(browser, machines[:1], "uncordon", step="apply", **fields, **hidden(shown))

    machine = Machine.objects.get(name="alpha")
    assert (machine.is_draining, machine.is_cordoned) == (False, False)
