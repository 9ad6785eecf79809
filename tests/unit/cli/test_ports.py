"""An installation keeps its port, so that bookmarks and exported addresses stay true."""

from pathlib import Path

from seamlessflow.cli.local.ports import claimed_port
from seamlessflow.cli.local.state import Home

PREFERRED = 27_310


def test_the_port_of_the_last_run_comes_before_the_preferred_one(tmp_path: Path) -> None:
    home = Home(tmp_path)
    assert home.web_port is None

    with claimed_port(PREFERRED), claimed_port(PREFERRED) as second:
        home.note_web_port(f"http://127.0.0.1:{second}")
    with claimed_port(PREFERRED, last=home.web_port) as again:
        assert again == second != PREFERRED


def test_another_port_is_taken_if_that_of_the_last_run_is_in_use() -> None:
    with claimed_port(PREFERRED) as taken, claimed_port(PREFERRED, last=taken) as port:
        assert port != taken
