"""`seamlessflow tokens` against a real web process."""

import json

import click
import pytest
from click.testing import CliRunner, Result
from pytest_django.live_server_helper import LiveServer

from seamlessflow.cli.main import cli
from seamlessflow.client import ApiError
from tests.fixtures.control_plane import Cast

pytestmark = pytest.mark.django_db(transaction=True)


def run(*arguments: str) -> Result:
    return CliRunner().invoke(cli, ("tokens", *arguments), standalone_mode=False)


def test_the_command_line_creates_lists_and_revokes_tokens(
    cast: Cast, live_server: LiveServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SEAMLESSFLOW_WEB_URL", live_server.url)
    monkeypatch.setenv("SEAMLESSFLOW_TOKEN", cast.operator.secret)

    made = run("create", "ci", "--project", "default", "--scopes", "read,submit", "--expires-in-days", "7")
    assert made.exception is None, made.output
    assert made.stdout.startswith("sft_")
    assert made.stdout.count("\n") == 1, "a script reads the secret and nothing else"
    (row,) = (row for row in json.loads(run("list", "--json").stdout) if row["name"] == "ci")
    assert (row["project"], row["scopes"]) == ("default", ["read", "submit"])
    assert f"{row['id']}  ci" in run("list").stdout
    assert run("revoke", row["id"]).exception is None
    assert "revoked" in next(line for line in run("list").stdout.splitlines() if line.startswith(row["id"]))
    monkeypatch.setenv("SEAMLESSFLOW_TOKEN", made.stdout.strip())
    refused = run("list").exception
    assert isinstance(refused, ApiError)


def test_an_unknown_scope_is_refused_by_name() -> None:
    refused = run("create", "ci", "--scopes", "read,everything").exception
    assert isinstance(refused, click.BadParameter)
    assert "'everything' is not a scope; accepted: read, submit" in str(refused)
