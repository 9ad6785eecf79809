"""A back-up taken while a job trains is restored into an empty installation, and the job completes
with its record intact."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from seamlessflow.client import Client
from tests.acceptance.conftest import calculator_spec
from tests.acceptance.platform_process import PlatformProcess, eventually, new_platform

NUM_UPDATES = 24
COMMAND_TIMEOUT_S = 120


def command(platform: PlatformProcess, *arguments: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [sys.executable, "-m", "seamlessflow.cli", *arguments],
        env=dict(platform.environ) | {"SEAMLESSFLOW_HOME": str(platform.home.root)},
        capture_output=True,
        text=True,
        timeout=COMMAND_TIMEOUT_S,
        check=False,
    )


def version_of(client: Client, job_id: str) -> int:
    return int(client.job_get(job_id)["latest_version"])


def copied(backup: Path, name: str) -> Path:
    """Copy a folder with links instead of bytes, so that a test may damage the copy."""
    target = backup.with_name(name)
    shutil.copytree(backup, target, copy_function=os.link)
    return target


def refusals(backup: Path, platform: PlatformProcess) -> list[str]:
    """Return the error for each back-up that is not intact. Each of these attempts leaves the
    database empty."""
    interrupted = copied(backup, "interrupted")
    (interrupted / "manifest.json").unlink()
    lacking = copied(backup, "lacking")
    name = json.loads((lacking / "manifest.json").read_text())["files"][0]["path"]
    (lacking / "files" / name).unlink()
    said = []
    for folder in (interrupted, lacking):
        done = command(platform, "restore", str(folder))
        assert done.returncode != 0, done.stdout
        said.append(done.stderr)
    assert name in said[1]
    return said


@pytest.mark.timeout(420)
def test_a_job_continues_from_a_back_up_that_was_taken_while_it_trained(
    platform: PlatformProcess, model_root: Path, tmp_path: Path
) -> None:
    spec = calculator_spec(model_root, num_updates=NUM_UPDATES, checkpoint_every_updates=2) | {
        "name": "backed-up"
    }
    backup = tmp_path / "backup"
    with platform.client() as client:
        spec["model"]["source"] = client.upload(model_root / "calculator")
        job_id = client.job_submit(spec)["id"]
        eventually(lambda: version_of(client, job_id) >= 2, timeout_s=180, what="the second version")
        before = version_of(client, job_id)
        taken = command(platform, "backup", str(backup))
        after = version_of(client, job_id)
        client.job_edit(job_id, "cancel")
    assert taken.returncode == 0, taken.stderr
    assert "not there" not in taken.stderr
    assert after > before, "the job did not train on while the back-up was taken"
    assert "is not empty" in command(platform, "backup", str(backup)).stderr

    restored = new_platform(tmp_path / "home", model_root=model_root)
    said = refusals(backup, restored)
    assert "does not contain a complete back-up" in said[0]
    assert "is missing from the back-up" in said[1]
    done = command(restored, "restore", str(backup))
    assert done.returncode == 0, done.stderr
    assert "is paused" not in done.stderr
    assert "tables; restore into an empty one" in command(restored, "restore", str(backup)).stderr
    with restored:
        restored.start()
        with restored.client() as client:
            assert before <= version_of(client, job_id) <= after
            job = client.job_wait(job_id)
            assert (job["name"], job["latest_version"]) == ("backed-up", NUM_UPDATES)
            checks: list[dict[str, Any]] = client.job_part(job_id, "audit")["checks"]
            assert [check for check in checks if not check["ok"]] == []
