"""A host that joins by the installation's join token: over the real REST API, by the real command's function."""

import json
from http import HTTPStatus
from pathlib import Path

import msgspec
import pytest
from pytest_django import Settings
from pytest_django.live_server_helper import LiveServer

from seamlessflow.cli.errors import CliError
from seamlessflow.cli.joining import machine_join
from seamlessflow.cli.local.state import Home
from seamlessflow.control_plane.accounts.models import Token
from seamlessflow.control_plane.cluster import worker_auth
from seamlessflow.control_plane.cluster.models import Machine
from seamlessflow.control_plane.cluster.services import machine_edit
from seamlessflow.core.protocol.worker import Heartbeat, Join, Joined
from seamlessflow.core.scheduling.edits import MachineEdit
from tests.fixtures.control_plane import worker_post

JOIN_TOKEN = "join-" + "0123456789abcdef" * 3


@pytest.fixture
def joining(settings: Settings) -> None:
    settings.JOIN_TOKEN = JOIN_TOKEN


def join(name: str = "gpu-1", *, secret: str = JOIN_TOKEN, tags: tuple[str, ...] = ("rollout",)) -> Joined:
    response = worker_post("join", msgspec.json.encode(Join(name=name, tags=list(tags))), secret=secret)
    assert response.status_code == HTTPStatus.OK, response.content
    return msgspec.json.decode(response.content, type=Joined)


def heartbeat_status(token: str) -> int:
    body = msgspec.json.encode(Heartbeat(boot_id=Machine.objects.get().id, monotonic_s=1.0))
    worker_auth._remembered.clear()
    return worker_post("heartbeat", body, secret=token).status_code


@pytest.mark.usefixtures("cast", "joining")
def test_newcomer_gets_a_token_that_the_worker_api_accepts_and_the_tags_it_asked_for() -> None:
    joined = join(tags=("train", "rollout"))

    assert joined.tags == ["rollout", "train"]
    assert heartbeat_status(joined.token) == HTTPStatus.OK


@pytest.mark.usefixtures("cast", "joining")
def test_machine_that_joins_again_keeps_its_edited_tags_and_its_old_token_ends() -> None:
    first = join(tags=("rollout",))
    machine = Machine.objects.get(name="gpu-1")
    machine_edit(machine_id=machine.id, edit=MachineEdit(tags=["agent"]), reason="moved", author="user:olga")

    second = join(tags=("rollout",))

    assert second.tags == ["agent"]
    assert heartbeat_status(first.token) == HTTPStatus.UNAUTHORIZED
    assert heartbeat_status(second.token) == HTTPStatus.OK


@pytest.mark.usefixtures("cast", "joining")
def test_wrong_join_token_bad_name_and_bad_tag_are_refused_and_leave_nothing() -> None:
    def status(secret: str, name: str, tag: str) -> tuple[int, bytes]:
        body = msgspec.json.encode(Join(name=name, tags=[tag]))
        response = worker_post("join", body, secret=secret)
        return response.status_code, response.content

    assert status("wrong" * 10, "gpu-1", "rollout")[0] == HTTPStatus.UNAUTHORIZED
    assert b"'GPU 1'" in status(JOIN_TOKEN, "GPU 1", "rollout")[1]
    assert b"'Roll out'" in status(JOIN_TOKEN, "gpu-1", "Roll out")[1]
    assert (Machine.objects.count(), Token.objects.filter(kind="machine").count()) == (0, 0)


@pytest.mark.usefixtures("cast")
def test_installation_without_a_join_token_lets_nobody_join_by_themselves() -> None:
    response = worker_post("join", msgspec.json.encode(Join(name="gpu-1")), secret="")
    also = worker_post("join", msgspec.json.encode(Join(name="gpu-1")), secret="anything-at-all-" * 3)

    assert (response.status_code, also.status_code) == (HTTPStatus.FORBIDDEN, HTTPStatus.FORBIDDEN)
    assert "SEAMLESSFLOW_JOIN_TOKEN" in json.loads(also.content)["detail"]


@pytest.mark.django_db(transaction=True)
@pytest.mark.usefixtures("joining")
def test_command_keeps_the_token_for_its_user_alone_and_says_what_was_refused(
    live_server: LiveServer, tmp_path: Path
) -> None:
    given = {"name": "gpu-1", "tags": ["rollout"], "control_plane_url": live_server.url}
    home = Home(tmp_path / "home")

    path = machine_join(home, **given, environ={"SEAMLESSFLOW_JOIN_TOKEN": JOIN_TOKEN})  # type: ignore[arg-type]

    assert path.stat().st_mode & 0o777 == 0o600
    assert heartbeat_status(path.read_text()) == HTTPStatus.OK
    with pytest.raises(CliError, match="not the installation's"):
        machine_join(home, **given, environ={"SEAMLESSFLOW_JOIN_TOKEN": "wrong" * 10})  # type: ignore[arg-type]
    with pytest.raises(CliError, match="--token-file is missing"):
        machine_join(home, **given, environ={})  # type: ignore[arg-type]
