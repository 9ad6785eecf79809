"""A back-up taken while a job trains is restored into an empty installation, and the job trains on with its record
intact, also after the whole installation was killed."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from seamlessflow.client import Client
from tests.acceptance.conftest import calculator_spec
from tests.acceptance.job_watching import assert_audit_holds, wait_for_version
from tests.acceptance.platform_process import PlatformProcess, eventually, new_platform

MANY_UPDATES = 10_000  # more than come to an end
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


def refuse_without_a_file(backup: Path, platform: PlatformProcess) -> None:
    """A back-up that is not whole is refused, and leaves the database empty."""
    lacking = copied(backup, "lacking")
    name = json.loads((lacking / "manifest.json").read_text())["files"][0]["path"]
    (lacking / "files" / name).unlink()
    done = command(platform, "restore", str(lacking))
    assert done.returncode != 0, done.stdout
    assert f"{name} is missing from the back-up" in done.stderr


@pytest.mark.timeout(420)
def test_a_job_continues_from_a_back_up_that_was_taken_while_it_trained(
    platform: PlatformProcess, model_root: Path, tmp_path: Path
) -> None:
    spec = calculator_spec(model_root, num_updates=MANY_UPDATES, checkpoint_every_updates=2) | {
        "name": "backed-up"
    }
    backup = tmp_path / "backup"
    with platform.client() as client:
        spec["model"]["source"] = client.upload(model_root / "calculator")
        job_id = client.job_submit(spec)["id"]
        wait_for_version(client, job_id, 2)
        before = version_of(client, job_id)
        taken = command(platform, "backup", str(backup))
        after = version_of(client, job_id)
        client.job_edit(job_id, "cancel")
    assert taken.returncode == 0, taken.stderr
    assert "not there" not in taken.stderr
    assert after > before, "the job did not train on while the back-up was taken"

    restored = new_platform(tmp_path / "home", model_root=model_root, has_fork_server=False)
    refuse_without_a_file(backup, restored)
    done = command(restored, "restore", str(backup))
    assert done.returncode == 0, done.stderr
    assert "is paused" not in done.stderr
    assert "tables; restore into an empty one" in command(restored, "restore", str(backup)).stderr
    with restored:
        restored.start()
        with restored.client() as client:
            assert before <= version_of(client, job_id) <= after
            assert client.job_get(job_id)["name"] == "backed-up"
            wait_for_version(client, job_id, after + 2)
        restored.kill()

        restored.start()
        with restored.client() as client:
            wait_for_version(client, job_id, version_of(client, job_id) + 2)
            client.job_edit(job_id, "cancel")
            eventually(lambda: client.job_get(job_id)["ended_at"], timeout_s=60, what="the end of the job")
            assert_audit_holds(client, job_id)
