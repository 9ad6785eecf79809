"""`seamlessflow storage` against a real web process."""

import json
from datetime import timedelta

import pytest
from click.testing import CliRunner, Result
from django.utils import timezone
from pytest_django.live_server_helper import LiveServer

from seamlessflow.cli.errors import CliError
from seamlessflow.cli.main import cli
from seamlessflow.cli.storage import bytes_shown
from seamlessflow.client import ApiError
from seamlessflow.control_plane.jobs.models import Job
from seamlessflow.core.types.ids import IdKind, show_id
from tests.fixtures.control_plane import Cast

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def signed_in(cast: Cast, live_server: LiveServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SEAMLESSFLOW_WEB_URL", live_server.url)
    monkeypatch.setenv("SEAMLESSFLOW_TOKEN", cast.owner.secret)


def run(*arguments: str, answer: str | None = None) -> Result:
    return CliRunner().invoke(cli, ("storage", *arguments), standalone_mode=False, input=answer)


@pytest.mark.usefixtures("signed_in")
def test_the_command_line_shows_storage_edits_the_policy_and_deletes(cast: Cast) -> None:
    live, job = cast.job(name="live", is_running=True), cast.job(name="old")
    Job.objects.filter(id=job.id).update(state="completed", ended_at=timezone.now() - timedelta(days=2))
    shown = show_id(IdKind.JOB, job.id)

    assert "default" in run("show").output
    assert json.loads(run("show", "--json").output)[0]["by_kind"]["uploads"] == 0
    assert shown in run("jobs").output
    edited = run("policy", "--set", "jobs_days=1", "--set", "logs_days=forever")
    assert "logs_days                forever        set here" in edited.output
    assert f"job              {shown}" in run("plan").output
    wrong = run("policy", "--set", "jobs_days=soon").exception
    assert isinstance(wrong, CliError)
    assert wrong.exit_code == 2
    assert isinstance(run("policy", "--set", "jobs_day=1").exception, ApiError)
    refused = run("delete", "job", show_id(IdKind.JOB, live.id), "--yes").exception
    assert isinstance(refused, CliError)
    assert "has not ended" in str(refused)
    assert run("delete", "job", shown, "--dry-run").exception is None
    assert "nothing was deleted" in str(run("delete", "job", shown, answer="n\n").exception)
    assert Job.objects.get(id=job.id).deleted_at is None
    assert run("delete", "job", shown, answer="y\n").exception is None
    assert Job.objects.get(id=job.id).deleted_at is not None


def test_bytes_are_shown_in_readable_units() -> None:
    assert [bytes_shown(number) for number in (0, 999, 1500, 16 * 10**9)] == [
        "0 B",
        "999 B",
        "1.5 kB",
        "16.0 GB",
    ]
