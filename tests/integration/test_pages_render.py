"""The first pages: who may see them, what an empty platform says, that a page holds the state it shows."""

import json
import re

import pytest
from django.test import Client

from seamlessflow.core.types.ids import IdKind, show_id
from tests.fixtures.control_plane import Cast, Person, worker_make


def browser(person: Person) -> Client:
    client = Client()
    client.force_login(person.user)
    return client


def embedded_state(html: str) -> dict[str, object]:
    found = re.search(r'<script id="state" type="application/json">(.*?)</script>', html, re.DOTALL)
    assert found is not None
    state: dict[str, object] = json.loads(found[1])
    return state


@pytest.mark.parametrize("path", ["/", "/machines"])
def test_a_visitor_is_told_how_to_sign_in(cast: Cast, path: str) -> None:
    response = Client().get(path, follow=True)
    assert response.redirect_chain[-1][0].startswith("/signin")
    assert "one-time link" in response.content.decode()


def test_an_empty_list_tells_how_to_submit(cast: Cast) -> None:
    html = browser(cast.member).get("/").content.decode()
    assert "seamlessflow submit job.yaml" in html
    assert "/api/v1/jobs" in html


def test_a_job_page_holds_its_job_and_machines(cast: Cast) -> None:
    worker_make("alpha", "rollout").heartbeat()
    job = cast.job(name="<b>bold</b>")
    path = f"/jobs/{show_id(IdKind.JOB, job.id)}"
    html = browser(cast.member).get(path).content.decode()
    assert "<b>bold</b>" not in html
    state = embedded_state(html)
    assert state["subscribe"] == [f"job:{show_id(IdKind.JOB, job.id)}", "machines"]
    assert set(state["topics"]) == {f"job:{job.id}", "machines"}  # type: ignore[call-overload]
    assert browser(cast.outsider).get(path).status_code == 404


def test_the_list_shows_only_the_projects_of_the_visitor(cast: Cast) -> None:
    cast.job(name="secret plan")
    assert "secret plan" in browser(cast.member).get("/").content.decode()
    assert "secret plan" not in browser(cast.outsider).get("/").content.decode()


def test_the_machines_page_lists_machines(cast: Cast) -> None:
    worker_make("alpha", "rollout").heartbeat()
    assert '"alpha"' in browser(cast.member).get("/machines").content.decode()
