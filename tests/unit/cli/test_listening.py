"""Where `up` listens, and what other hosts then need to join."""

import stat
from pathlib import Path

import pytest

from seamlessflow.cli.errors import CliError
from seamlessflow.cli.local.listening import listening_address, machine_listening, plane_listening
from seamlessflow.cli.local.ports import LOOPBACK
from seamlessflow.cli.local.state import Home

OTHER = "127.0.0.2"


@pytest.mark.parametrize(
    "text, named",
    [("0.0.0.0", "stands for all"), ("192.0.2.77", "not an address of this host"), ("web", "not an IPv4")],
)
def test_an_address_that_nothing_can_be_told_is_refused(text: str, named: str) -> None:
    with pytest.raises(CliError, match=named):
        listening_address(text)


def test_loopback_changes_nothing_and_makes_no_join_token(tmp_path: Path) -> None:
    assert listening_address(LOOPBACK) == listening_address("localhost") == LOOPBACK
    assert plane_listening(Home(tmp_path), LOOPBACK, environ={}) == {}
    assert machine_listening(LOOPBACK, environ={}) == {}
    assert list(tmp_path.iterdir()) == []


def test_another_address_comes_with_a_join_token_that_stays(tmp_path: Path) -> None:
    home = Home(tmp_path)
    planes = plane_listening(home, listening_address(OTHER), environ={})

    assert planes["SEAMLESSFLOW_MODE"] == "private"
    assert len(planes["SEAMLESSFLOW_JOIN_TOKEN"]) >= 32
    assert plane_listening(home, OTHER, environ={}) == planes
    assert stat.S_IMODE((tmp_path / "join-token.secret").stat().st_mode) == 0o600
    own = plane_listening(home, OTHER, environ={"SEAMLESSFLOW_JOIN_TOKEN": "chosen"})
    assert own["SEAMLESSFLOW_JOIN_TOKEN"] == "chosen"
    assert machine_listening(OTHER, environ={}) == {"SEAMLESSFLOW_LISTEN_HOST": OTHER}
