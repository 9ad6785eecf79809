"""When the disk has no room for weights, one sentence says so, nothing is half-made, and the job
continues once there is room."""

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.acceptance.conftest import calculator_spec
from tests.acceptance.platform_process import PlatformProcess, eventually, new_platform

# A version of the example's weights takes 3.4 MB.
SMALL_DISK = 'mount -t tmpfs -o size=2m none "$0" && exec "$@"'
LARGER = "mount -o remount,size=256m"


def test_a_disk_without_room_for_weights_is_reported_in_one_sentence_and_nothing_is_half_made(
    model_root: Path, tmp_path: Path
) -> None:
    artifacts = tmp_path / "artifacts"
    artifacts.mkdir()
    with new_platform(tmp_path / "home", model_root=model_root, has_fork_server=False) as installation:
        installation.environ["ARTIFACT_ROOT"] = str(artifacts)
        installation.prefix = (*mount_namespace(), "sh", "-c", SMALL_DISK, str(artifacts))
        installation.start()
        with installation.client() as client:
            job_id = client.job_submit(calculator_spec(model_root, num_updates=2))["id"]

            def failure() -> str:
                reason = str(client.job_get(job_id)["waiting_reason"])
                return reason if "failed phases" in reason else ""

            said = eventually(failure, timeout_s=60, what="a failed phase")
            assert "cannot write weights of version 1" in said
            assert said.endswith("free space or change ARTIFACT_ROOT")
            assert [version["version"] for version in client.job_part(job_id, "versions")["results"]] == [0]
            assert not [path for path in seen_by(installation, artifacts).rglob("*") if path.is_file()]

            in_its_namespace(installation, *LARGER.split(), str(artifacts))
            ended = client.job_wait(job_id)
            audit = client.job_part(job_id, "audit")
    assert ended["state"] == "completed"
    assert [check for check in audit["checks"] if not check["ok"]] == []


def mount_namespace() -> list[str]:
    """Return a command that runs another in a mount namespace of its own."""
    unshare = ["unshare", "--mount"] if os.geteuid() == 0 else ["unshare", "--map-root-user", "--mount"]
    if shutil.which("unshare") is None or subprocess.run([*unshare, "true"], check=False).returncode != 0:
        pytest.skip("mount namespaces are not allowed here")
    return unshare


def seen_by(installation: PlatformProcess, path: Path) -> Path:
    assert installation.process is not None
    return Path(f"/proc/{installation.process.pid}/root{path}")


def in_its_namespace(installation: PlatformProcess, *command: str) -> None:
    assert installation.process is not None
    pid = str(installation.process.pid)
    users = [] if os.geteuid() == 0 else ["--user", "--preserve-credentials"]
    subprocess.run(["nsenter", "--target", pid, "--mount", *users, *command], check=True)
