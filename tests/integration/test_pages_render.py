"""The first pages: who may see them, what an empty platform says, that a page holds the state it shows."""

import json
import re
from datetime import date
from uuid import UUID

import numpy as np
import pytest
import zstandard
from django.db import connection
from django.test import Client
from django.utils import timezone

from seamlessflow.control_plane.accounts.models import Membership, MembershipRole
from seamlessflow.control_plane.common.ids import new_id
from seamlessflow.control_plane.jobs.models import Job
from seamlessflow.control_plane.live.selectors import job_snapshot
from seamlessflow.control_plane.trajectories.models import NodeKind, RolloutGroup, Session
from seamlessflow.core.lifecycle.groups import SessionState
from seamlessflow.core.types.ids import IdKind, show_id
from tests.fixtures.control_plane import Cast, Person, group_make, worker_make


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
    assert set(state["topics"]) == {f"job:{show_id(IdKind.JOB, job.id)}", "machines"}  # type: ignore[call-overload]
    assert browser(cast.outsider).get(path).status_code == 404


def test_the_list_shows_only_the_projects_of_the_visitor(cast: Cast) -> None:
    cast.job(name="secret plan")
    assert "secret plan" in browser(cast.member).get("/").content.decode()
    assert "secret plan" not in browser(cast.outsider).get("/").content.decode()


def test_the_machines_page_lists_machines(cast: Cast) -> None:
    worker_make("alpha", "rollout").heartbeat()
    assert '"alpha"' in browser(cast.member).get("/machines").content.decode()


def test_the_curve_ends_with_the_last_published_update(cast: Cast) -> None:
    job = cast.job()
    for index in range(4):
        group_make(job, index)
        RolloutGroup.objects.filter(job=job, index=index).update(batch_number=index + 1, reward_mean=0.5)
    Job.objects.filter(id=job.id).update(published_batch=3)
    assert [row["batch"] for row in job_snapshot(job.id)["rewards"]] == [1, 2, 3]


def test_only_who_may_write_is_offered_to_cancel(cast: Cast) -> None:
    path = f"/jobs/{show_id(IdKind.JOB, cast.job().id)}"
    assert 'id="cancel"' in browser(cast.member).get(path).content.decode()
    Membership.objects.filter(user=cast.member.user).update(role=MembershipRole.VIEWER)
    assert 'id="cancel"' not in browser(cast.member).get(path).content.decode()


def test_a_group_page_lists_sessions_with_the_last_line_of_why_they_failed(cast: Cast) -> None:
    session = session_make(
        cast.job(), state=SessionState.FAILED, reason="Traceback:\n  File\nOSError: <gone>"
    )
    path = f"/groups/{show_id(IdKind.GROUP, session.group_id)}"
    html = browser(cast.member).get(path).content.decode()
    assert f"/sessions/{show_id(IdKind.SESSION, session.id)}" in html
    assert "OSError: &lt;gone&gt;" in html
    assert "Traceback" not in html
    assert browser(cast.outsider).get(path).status_code == 404


def test_a_session_page_shows_each_sampled_token_with_its_version(cast: Cast) -> None:
    session = session_make(cast.job(), num_sampled_tokens=3)
    node_make(session, index=0, parent=None, kind=NodeKind.PROMPT, versions=[], num_tokens=2)
    node_make(session, index=1, parent=0, kind=NodeKind.SAMPLED, versions=[0, 4, 2, 5], num_tokens=3)
    path = f"/sessions/{show_id(IdKind.SESSION, session.id)}"
    html = browser(cast.member).get(path).content.decode()
    said = re.findall(r'title="token (\d): id (\d+), probability ([\d.]+), version (\d)"', html)
    assert said == [("0", "10", "0.500", "4"), ("1", "11", "0.500", "4"), ("2", "12", "0.500", "5")]
    assert "version 4: 2 tokens" in " ".join(re.sub("<.*?>", " ", html).split())
    assert browser(cast.outsider).get(path).status_code == 404


def test_a_long_session_shows_bars_instead_of_tokens(cast: Cast) -> None:
    session = session_make(cast.job(), num_sampled_tokens=1_000_000)
    node_make(session, index=0, parent=None, kind=NodeKind.SAMPLED, versions=[0, 4], num_tokens=3)
    html = browser(cast.member).get(f"/sessions/{show_id(IdKind.SESSION, session.id)}").content.decode()
    assert "<title>3 tokens of version 4</title>" in html
    assert 'title="token' not in html


def session_make(job: Job, **fields: object) -> Session:
    now = timezone.now()
    values = {"state": SessionState.CLOSED, "num_turns": 1, "closed_at": now} | fields
    return Session.objects.create(
        id=new_id(), project_id=job.project_id, job=job, group=group_make(job, 0), month=now.date().replace(day=1),
        slot=0, key_digest=b"digest", opened_at=now, **values,
    )  # fmt: skip


def node_make(
    session: Session, *, index: int, parent: int | None, kind: NodeKind, versions: list[int], num_tokens: int
) -> None:
    """Nodes are written by the gateway's own SQL, so there is no model."""
    ids = np.arange(10, 10 + num_tokens, dtype="<i4")
    columns: dict[str, date | UUID | int | str | bytes | list[int] | None] = {
        "month": session.month,
        "session_id": session.id,
        "node_index": index,
        "project_id": session.project_id,
        "job_id": session.job_id,
        "parent_index": parent,
        "kind": kind.value,
        "num_tokens": num_tokens,
        "token_ids": zstandard.compress(ids.tobytes()),
        "logprobs": zstandard.compress(np.full(num_tokens, np.log(0.5), dtype="<f4").tobytes()),
        "version_spans": versions or None,
        "turn_id": new_id(),
        "verdict": "clean",
    }
    places = ", ".join(["%s"] * len(columns))
    with connection.cursor() as cursor:
        cursor.execute(
            f"INSERT INTO trajectory_node ({', '.join(columns)}) VALUES ({places})", list(columns.values())
        )
