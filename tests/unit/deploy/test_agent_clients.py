"""Environments of agent clients: what makes them out of date, and what a failure leaves."""

import re
from pathlib import Path

import pytest

from deploy.local import agent_clients
from deploy.local.agent_clients import ensure, failure_of, is_up_to_date, pins
from deploy.local.bootstrap import SetupFailed
from tests.fixtures.external_agents_guide import GUIDE

PINS = '[a]\npython = ["a==1"]\n\n[b]\nnode = ["b@1"]\n'


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "pins.toml").write_text(PINS)
    monkeypatch.setattr(agent_clients, "PINS", tmp_path / "pins.toml")
    monkeypatch.setattr(agent_clients, "CLIENTS", tmp_path / "clients")
    monkeypatch.setattr(agent_clients, "LOG", tmp_path / "logs" / "setup.log")
    return tmp_path


def test_a_client_that_cannot_be_installed_does_not_stop_the_others(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(name: str, packages: list[str]) -> None:
        raise SetupFailed("no registry")

    monkeypatch.setattr(agent_clients, "set_up_node", fails)
    monkeypatch.setattr(
        agent_clients, "set_up_python", lambda name, packages: (folder / "clients" / name).mkdir()
    )
    monkeypatch.setattr(agent_clients, "say", lambda text: None)
    monkeypatch.setattr(agent_clients, "ROOT", folder)

    assert ensure(pins()) == {"b": "no registry"}
    assert (is_up_to_date("a"), is_up_to_date("b")) == (True, False)

    agent_clients.PINS.write_text(PINS.replace("a==1", "a==2"))
    assert not is_up_to_date("a")
    assert failure_of("b") == "no registry"


def name_and_version(pin: str) -> tuple[str, str]:
    name, _, version = pin.rpartition("==" if "==" in pin else "@")
    return name, version


def test_the_guide_names_the_pinned_versions() -> None:
    pinned = {
        name_and_version(pin) for client in pins().values() for pins_of in client.values() for pin in pins_of
    }
    table = GUIDE.partition("### Clients that are tested")[2].partition("Others were tried")[0]
    rows = [line for line in table.splitlines() if line.startswith("| `")]
    shown = {
        (name, version)
        for row in rows
        for name in re.findall(r"`([^` ]+)`", row.split("|")[1])
        for version in re.findall(r"\d+\.\d+\.\d+", row)
    }

    named = {name for name, _ in shown}
    assert len(rows) == 21  # of both tables
    assert {pin for pin in pinned if pin[0] in named} <= shown
    assert {version for _, version in shown} == {version for name, version in pinned if name in named}
