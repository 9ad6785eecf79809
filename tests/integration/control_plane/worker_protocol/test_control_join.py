"""A host joins with the installation's join token, over the real REST API, through the real
command's function."""

import json
from datetime import timedelta
from http import HTTPStatus
from pathlib import Path
from typing import Any
from unittest.mock import patch

import msgspec
import pytest
from django.db.models import F
from django.http import HttpResponse
from pytest_django import Settings
from pytest_django.live_server_helper import LiveServer

from seamlessflow.cli import joining as joining_of_hosts
from seamlessflow.cli.errors import CliError
from seamlessflow.cli.joining import machine_join
from seamlessflow.cli.local.state import Home
from seamlessflow.control_plane.accounts.models import Token
from seamlessflow.control_plane.cluster.models import Machine, MachineHeartbeat
from seamlessflow.control_plane.cluster.services.machines import machine_edit
from seamlessflow.control_plane.worker_protocol import authentication as worker_auth
from seamlessflow.core.protocol.worker import Heartbeat, Join, Joined
from seamlessflow.core.types.desired_state import MachineEdit
from tests.fixtures.control_plane import worker_post

JOIN_TOKEN = "join-" + "0123456789abcdef" * 3
LOST_S = 16.0  # silent for longer than `core.scheduling.blame.health` bears


@pytest.fixture
def joining(settings: Settings) -> None:
    settings.JOIN_TOKEN = JOIN_TOKEN


def join_asked(name: str = "gpu-1", **fields: Any) -> HttpResponse:
    body = {
        "name": name,
        "tags": ["rollout"],
    } | fields  # as any host would send it, of this release or of another
    return worker_post("join", msgspec.json.encode(body), secret=JOIN_TOKEN)


def join(name: str = "gpu-1", **fields: Any) -> Joined:
    response = join_asked(name, **fields)
    assert response.status_code == HTTPStatus.OK, response.content
    return msgspec.json.decode(response.content, type=Joined)


def silent_for(seconds: float) -> None:
    """Pretend that the machine was not heard from, and that nobody joined, for this long."""
    ago = F("received_at") - timedelta(seconds=seconds)
    MachineHeartbeat.objects.update(received_at=ago)
    Token.objects.update(created_at=F("created_at") - timedelta(seconds=seconds))


def heartbeat_status(token: str) -> int:
    body = msgspec.json.encode(Heartbeat(boot_id=Machine.objects.get().id, monotonic_s=1.0))
    worker_auth._remembered.clear()
    return worker_post("heartbeat", body, secret=token).status_code


@pytest.mark.usefixtures("cast", "joining")
def test_a_new_machine_gets_a_token_that_the_worker_api_accepts_and_the_tags_it_asked_for() -> None:
    joined = join(tags=["train", "rollout"])

    assert joined.tags == ["rollout", "train"]
    assert heartbeat_status(joined.token) == HTTPStatus.OK


@pytest.mark.usefixtures("cast", "joining")
def test_a_machine_that_joins_again_keeps_its_edited_tags_and_its_old_token_ends() -> None:
    first = join(tags=["rollout"])
    machine = Machine.objects.get(name="gpu-1")
    machine_edit(machine_id=machine.id, edit=MachineEdit(tags=["agent"]), reason="moved", author="user:olga")

    second = join(tags=["rollout"], stored_token=first.token)

    assert second.tags == ["agent"]
    assert heartbeat_status(first.token) == HTTPStatus.UNAUTHORIZED
    assert heartbeat_status(second.token) == HTTPStatus.OK


@pytest.mark.usefixtures("cast", "joining")
def test_the_join_token_cannot_take_over_a_machine_that_is_heard_from() -> None:
    first = join()
    assert join_asked().status_code == HTTPStatus.CONFLICT, "joined a moment ago, not heard of yet"
    assert heartbeat_status(first.token) == HTTPStatus.OK
    silent_for(10)
    answer = join_asked(stored_token="sfm_guessed")

    assert answer.status_code == HTTPStatus.CONFLICT
    assert (
        "another host uses 'gpu-1' and sent its last heartbeat 10 s ago"
        in json.loads(answer.content)["detail"]
    )
    assert heartbeat_status(first.token) == HTTPStatus.OK


@pytest.mark.usefixtures("cast", "joining")
def test_the_same_host_rejoins_at_once_and_another_one_after_the_machine_is_lost() -> None:
    first = join()
    again = join(stored_token=first.token)
    assert heartbeat_status(again.token) == HTTPStatus.OK
    assert join_asked(stored_token=first.token).status_code == HTTPStatus.CONFLICT, (
        "a token that ended proves nothing"
    )
    silent_for(LOST_S)
    replaced = join()
    assert heartbeat_status(again.token) == HTTPStatus.UNAUTHORIZED
    assert heartbeat_status(replaced.token) == HTTPStatus.OK


@pytest.mark.usefixtures("cast", "joining")
def test_a_wrong_join_token_a_bad_name_and_a_bad_tag_are_refused_and_leave_nothing() -> None:
    def status(secret: str, name: str, tag: str) -> tuple[int, bytes]:
        body = msgspec.json.encode(Join(name=name, tags=[tag]))
        response = worker_post("join", body, secret=secret)
        return response.status_code, response.content

    assert status("wrong" * 10, "gpu-1", "rollout")[0] == HTTPStatus.UNAUTHORIZED
    assert b"'GPU 1'" in status(JOIN_TOKEN, "GPU 1", "rollout")[1]
    assert b"'Roll out'" in status(JOIN_TOKEN, "gpu-1", "Roll out")[1]
    assert (Machine.objects.count(), Token.objects.filter(kind="machine").count()) == (0, 0)


@pytest.mark.usefixtures("cast")
def test_without_a_join_token_no_machine_can_join() -> None:
    response = worker_post("join", msgspec.json.encode(Join(name="gpu-1")), secret="")
    also = worker_post("join", msgspec.json.encode(Join(name="gpu-1")), secret="anything-at-all-" * 3)

    assert (response.status_code, also.status_code) == (HTTPStatus.FORBIDDEN, HTTPStatus.FORBIDDEN)
    assert "SEAMLESSFLOW_JOIN_TOKEN" in json.loads(also.content)["detail"]


@pytest.mark.django_db(transaction=True)
@pytest.mark.usefixtures("joining")
def test_the_command_stores_the_token_for_its_user_only_and_says_what_was_refused(
    live_server: LiveServer, tmp_path: Path
) -> None:
    given = {"name": "gpu-1", "tags": ["rollout"], "control_plane_url": live_server.url}
    home = Home(tmp_path / "home")

    path = machine_join(home, **given, environ={"SEAMLESSFLOW_JOIN_TOKEN": JOIN_TOKEN})  # type: ignore[arg-type]

    assert path.stat().st_mode & 0o777 == 0o600
    assert heartbeat_status(path.read_text()) == HTTPStatus.OK
    first = path.read_text()
    machine_join(home, **given, environ={"SEAMLESSFLOW_JOIN_TOKEN": JOIN_TOKEN})  # type: ignore[arg-type]
    assert path.read_text() != first, "it joined again at once, by the token that it had stored"
    elsewhere = Home(tmp_path / "elsewhere")
    with (
        patch.object(joining_of_hosts, "WAIT_S", 0.0),
        pytest.raises(CliError, match="another host uses 'gpu-1'"),
    ):
        machine_join(elsewhere, **given, environ={"SEAMLESSFLOW_JOIN_TOKEN": JOIN_TOKEN})  # type: ignore[arg-type]
    with pytest.raises(CliError, match="not the join token"):
        machine_join(home, **given, environ={"SEAMLESSFLOW_JOIN_TOKEN": "wrong" * 10})  # type: ignore[arg-type]
    with pytest.raises(CliError, match="--token-file is missing"):
        machine_join(home, **given, environ={})  # type: ignore[arg-type]
