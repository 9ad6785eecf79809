"""Production settings in a process of their own: Django's deployment checks find nothing, and bad
settings end the process."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.fixtures.repository import ROOT

PRODUCTION = {
    "SEAMLESSFLOW_MODE": "production",
    "SEAMLESSFLOW_SECRET_KEY": "kX9-correct-horse-battery-staple-correct-horse-battery",
    "SEAMLESSFLOW_WEB_URL": "https://flow.example.org",
    "SEAMLESSFLOW_GATEWAY_URL": "http://gateway:8100",
    "SEAMLESSFLOW_ALLOWED_HOSTS": "web",
    "DATABASE_URL": "postgresql://nobody:secret@db.example.org/flow?sslmode=require",
    "BROKER_URL": "rediss://:secret@valkey.example.org:6379/0",
}


def run(folder: Path, *command: str, **changes: str | None) -> "subprocess.CompletedProcess[str]":
    kept = {name: os.environ[name] for name in ("PATH", "HOME") if name in os.environ}
    given = PRODUCTION | {"ARTIFACT_ROOT": str(folder), "PYTHONPATH": str(ROOT / "platform")} | changes
    return subprocess.run(
        [sys.executable, *command],
        env=kept | {name: value for name, value in given.items() if value is not None},
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def test_deployment_checks_find_nothing_in_production(tmp_path: Path) -> None:
    done = run(tmp_path, "manage.py", "check", "--deploy", "--fail-level", "WARNING")

    assert done.returncode == 0, done.stderr
    assert "no issues" in done.stdout


def test_deployment_checks_find_faults_without_production_mode(tmp_path: Path) -> None:
    """The check above can fail: a local installation is not fit to be exposed."""
    done = run(tmp_path, "manage.py", "check", "--deploy", "--fail-level", "WARNING", SEAMLESSFLOW_MODE=None)

    assert done.returncode == 1
    assert "security.W008" in done.stderr


@pytest.mark.parametrize("missing", ["SEAMLESSFLOW_SECRET_KEY", "SEAMLESSFLOW_WEB_URL", "DATABASE_URL"])
def test_a_missing_setting_ends_the_process_with_one_line(tmp_path: Path, missing: str) -> None:
    done = run(tmp_path, "manage.py", "check", **{missing: None})

    assert done.returncode == 1
    assert done.stderr.startswith(f"seamlessflow: {missing} is not set; accepted: ")
    assert done.stderr.count("\n") == 1


@pytest.mark.parametrize("module", ["seamlessflow.control_plane", "seamlessflow.data_plane"])
def test_a_local_installation_does_not_listen_to_other_machines(tmp_path: Path, module: str) -> None:
    done = run(tmp_path, "-m", module, "--host", "0.0.0.0", "--port", "1", SEAMLESSFLOW_MODE="local")

    assert done.returncode == 1
    assert "--host '0.0.0.0' is reachable from other machines" in done.stderr
    assert done.stderr.count("\n") == 1
