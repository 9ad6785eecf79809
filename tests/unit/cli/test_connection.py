"""Which platform and which token a command uses, whatever of the two is set."""

from types import SimpleNamespace
from typing import Any

import pytest

from seamlessflow.cli import connection
from seamlessflow.cli.errors import CliError

LOCAL = "http://127.0.0.1:8100"


@pytest.fixture
def clients(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Let this folder have an installation at LOCAL with a token of its own; return a way to connect."""
    tokens = SimpleNamespace(read_text=lambda: "own\n")
    home = SimpleNamespace(read_run=lambda: SimpleNamespace(web_url=LOCAL), cli_token_file=tokens)
    monkeypatch.setattr(connection, "Client", lambda url, token: (url, token))

    def connect(*, url: str = "", token: str = "", is_running: bool = True) -> Any:
        monkeypatch.setenv("SEAMLESSFLOW_WEB_URL", url)
        monkeypatch.setenv("SEAMLESSFLOW_TOKEN", token)
        here = home if is_running else SimpleNamespace(root="/srv/.seamlessflow", read_run=lambda: None)
        monkeypatch.setattr(connection, "find_home", lambda: here)
        return connection.connect()

    return connect


def test_what_is_not_set_comes_from_the_installation_in_this_folder(clients: Any) -> None:
    assert clients() == (LOCAL, "own")
    assert clients(url=LOCAL) == (LOCAL, "own")
    assert clients(url="http://localhost:8100") == (LOCAL, "own")
    assert clients(token="sft_x") == (LOCAL, "sft_x")
    assert clients(url="https://flow.example", token="sft_x") == ("https://flow.example", "sft_x")


@pytest.mark.parametrize(
    "url", ["https://flow.example", "http://127.0.0.1:9999", "http://flow.example:8100", "x:y"]
)
def test_the_own_token_goes_nowhere_else(clients: Any, url: str) -> None:
    with pytest.raises(CliError, match="seamlessflow tokens create"):
        clients(url=url)


def test_an_error_says_what_to_do(clients: Any) -> None:
    with pytest.raises(CliError, match="address of the dashboard"):
        clients(token="sft_x", is_running=False)
    with pytest.raises(CliError, match="tokens create"):
        clients(url=LOCAL, is_running=False)
    with pytest.raises(CliError, match=r"running in /srv/\.seamlessflow; .* set SEAMLESSFLOW_HOME"):
        clients(is_running=False)
