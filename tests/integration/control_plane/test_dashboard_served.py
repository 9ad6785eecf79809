"""How the web process serves the dashboard: to whom, under which content security policy, and
cached for how long."""

from pathlib import Path

import pytest
from django.test import Client

from seamlessflow.control_plane.accounts.models import Membership, MembershipRole
from seamlessflow.control_plane.dashboard import views
from seamlessflow.control_plane.dashboard.content_policy import HEADER
from tests.fixtures.control_plane import Cast, Person

BUILT_PAGE = b"<!doctype html><title>SeamlessFlow</title>"


def browser(person: Person) -> Client:
    client = Client()
    client.force_login(person.user)
    return client


@pytest.fixture
def built(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    page = tmp_path / "index.html"
    page.write_bytes(BUILT_PAGE)
    monkeypatch.setattr(views, "INDEX", page)


@pytest.mark.parametrize("path", ["/", "/jobs/new", "/jobs/job_00/logs", "/machines", "/sessions/ses_0"])
def test_every_address_of_the_application_answers_with_its_page(cast: Cast, built: None, path: str) -> None:
    response = browser(cast.member).get(path)
    assert response.content == BUILT_PAGE
    assert "no-store" in response["Cache-Control"]
    assert "seamlessflow_csrf" in response.cookies


def test_a_visitor_is_sent_to_sign_in(cast: Cast, built: None) -> None:
    response = Client().get("/machines")
    assert response.status_code == 302
    assert response["Location"].startswith("/signin")


def test_without_a_built_dashboard_the_page_says_how_to_build_it(
    cast: Cast, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(views, "INDEX", tmp_path / "missing.html")
    response = browser(cast.member).get("/")
    assert response.status_code == 503
    assert "make frontend" in response.content.decode()


@pytest.mark.parametrize("path", ["/", "/signin", "/admin/login/", "/api/v1/jobs", "/api/v1/schema/ui"])
def test_no_page_may_run_inline_scripts_or_scripts_from_elsewhere(cast: Cast, built: None, path: str) -> None:
    policy = Client().get(path)[HEADER]
    scripts = next(rule for rule in policy.split("; ") if rule.startswith("script-src"))
    assert scripts == "script-src 'self'"
    assert "default-src 'none'" in policy


def test_signing_out_ends_the_session(cast: Cast, built: None) -> None:
    client = browser(cast.member)
    assert client.get("/signout").status_code == 405
    assert client.post("/signout")["Location"] == "/signin"
    assert client.get("/").status_code == 302


def test_the_me_route_says_who_one_is_and_where_one_may_write(cast: Cast) -> None:
    Membership.objects.filter(user=cast.member.user).update(role=MembershipRole.VIEWER)
    me = browser(cast.member).get("/api/v1/me").json()
    assert me["username"] == cast.member.user.username
    assert me["is_staff"] is False
    assert [project["may_write"] for project in me["projects"]] == [False]


@pytest.mark.parametrize("path", ["/nothing", "/jobsx", "/api/v1/nothing"])
def test_an_address_that_is_not_a_page_is_not_found(cast: Cast, built: None, path: str) -> None:
    assert browser(cast.member).get(path).status_code == 404


def test_the_sign_in_page_explains_how_to_sign_in(cast: Cast) -> None:
    html = Client().get("/signin").content.decode()
    assert "one-time link" in html
    assert "<script" not in html
