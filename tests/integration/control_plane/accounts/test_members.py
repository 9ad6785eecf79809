"""Members of a project: who may edit them, what they keep, and that a project always has an
owner."""

import json
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from click.testing import CliRunner
from django.db import connection
from django.test import Client
from pytest_django.live_server_helper import LiveServer

from seamlessflow.cli.main import cli
from seamlessflow.client import ApiError
from seamlessflow.control_plane.accounts.models import Membership, Token, User
from seamlessflow.control_plane.common.models import Event
from tests.fixtures.control_plane import Cast, Person

MEMBERS = "projects/default/members"


def members(person: Person) -> dict[str, str]:
    rows = json.loads(person.call("GET", MEMBERS).content)["results"]
    return {row["username"]: row["role"] for row in rows}


def call(person: Person, method: str, path: str = MEMBERS, **body: Any) -> tuple[int, dict[str, Any]]:
    answer = person.call(method, path, body or None)
    return answer.status_code, json.loads(answer.content or b"{}")


def test_an_owner_adds_changes_and_removes_members(cast: Cast) -> None:
    assert members(cast.member) == {"mira": "member", "olga": "owner"}
    status, added = call(cast.owner, "POST", username="otto", role="viewer")
    assert (status, added["role"], added["sign_in_link"]) == (201, "viewer", "")
    assert call(cast.owner, "POST", username="otto")[0] == 409
    assert call(cast.owner, "PATCH", f"{MEMBERS}/otto", role="member")[0] == 200
    assert members(cast.owner) == {"mira": "member", "olga": "owner", "otto": "member"}
    assert cast.owner.call("DELETE", f"{MEMBERS}/otto").status_code == 204
    assert cast.owner.call("DELETE", f"{MEMBERS}/otto").status_code == 404
    kinds = Event.objects.filter(kind__startswith="member.").order_by("id").values_list("kind", flat=True)
    assert list(kinds) == ["member.added", "member.changed", "member.removed"]


def test_errors_name_the_field(cast: Cast) -> None:
    status, refused = call(cast.owner, "POST", username="nobody")
    assert (status, refused["errors"][0]["field"]) == (400, "username")
    assert "there is no account 'nobody'" in refused["detail"]
    assert call(cast.owner, "POST", username="a b", invite=True)[0] == 400
    status, refused = call(cast.owner, "POST", username="otto", role="king")
    assert (status, refused["errors"][0]["field"]) == (400, "role")
    assert call(cast.member, "POST", username="otto")[0] == 403
    assert call(cast.outsider, "GET")[0] == 404


def test_an_invited_person_signs_in_once_with_the_link(cast: Cast) -> None:
    status, added = call(cast.owner, "POST", username="nina", role="viewer", invite=True)
    assert status == 201
    path = "/signin/" + added["sign_in_link"].rpartition("/signin/")[2]

    browser = Client()
    assert (browser.post(path).status_code, Client().post(path).status_code) == (302, 410)
    me = browser.get("/api/v1/me").json()
    assert [(one["slug"], one["role"]) for one in me["projects"]] == [("default", "viewer")]
    assert not User.objects.get(username="nina").has_usable_password()


def test_the_tokens_of_a_removed_member_end_for_good(cast: Cast) -> None:
    assert cast.member.call("GET", "jobs").status_code == 200
    cast.owner.call("DELETE", f"{MEMBERS}/mira")
    assert cast.member.call("GET", "jobs").status_code == 401
    call(cast.owner, "POST", username="mira")
    assert cast.member.call("GET", "jobs").status_code == 401
    assert not Token.objects.filter(user=cast.member.user, revoked_at=None).exists()


def test_a_project_always_has_an_owner(cast: Cast) -> None:
    for method, body in (("DELETE", {}), ("PATCH", {"role": "viewer"})):
        status, refused = call(cast.owner, method, f"{MEMBERS}/olga", **body)
        assert (status, "last owner" in refused["detail"]) == (409, True)
    assert members(cast.owner)["olga"] == "owner"


@pytest.mark.django_db(transaction=True)
def test_of_two_owners_who_remove_each_other_at_once_one_remains(cast: Cast) -> None:
    Membership.objects.filter(user=cast.member.user).update(role="owner")
    Token.objects.filter(user__in=[cast.member.user, cast.owner.user]).update(scopes=["read", "admin"])

    def remove(pair: tuple[Person, str]) -> int:
        try:
            return pair[0].call("DELETE", f"{MEMBERS}/{pair[1]}").status_code
        finally:
            connection.close()

    with ThreadPoolExecutor(2) as threads:
        answers = list(threads.map(remove, [(cast.owner, "mira"), (cast.member, "olga")]))

    assert answers.count(204) == 1
    assert Membership.objects.filter(project=cast.owner.project, role="owner").count() == 1


@pytest.mark.django_db(transaction=True)
def test_the_command_line_edits_members(
    cast: Cast, live_server: LiveServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SEAMLESSFLOW_WEB_URL", live_server.url)
    monkeypatch.setenv("SEAMLESSFLOW_TOKEN", cast.owner.secret)

    def run(*arguments: str) -> Any:
        return CliRunner().invoke(cli, ("members", *arguments), standalone_mode=False)

    assert "/signin/" in run("add", "nina", "--invite").output
    assert "nina" in run("list").output
    assert "viewer" in run("set", "nina", "--role", "viewer", "--project", "default").output
    assert [row["role"] for row in json.loads(run("list", "--json").output) if row["username"] == "nina"] == [
        "viewer"
    ]
    assert "no longer in the project" in run("remove", "nina").output
    refused = run("remove", "olga").exception
    assert isinstance(refused, ApiError)
    assert "last owner" in str(refused)
