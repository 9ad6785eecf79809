"""The same job with nothing but `curl`: model and tasks are uploaded, and the job is submitted and
followed to its end."""

import json
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.acceptance.conftest import calculator_spec
from tests.acceptance.platform_process import PlatformProcess, eventually

pytestmark = pytest.mark.skipif(shutil.which("curl") is None, reason="curl is not on PATH")


def test_a_job_submitted_with_nothing_but_curl_completes(
    platform: PlatformProcess, model_root: Path, tmp_path: Path
) -> None:
    archive = tmp_path / "model.tar"
    subprocess.run(["tar", "-C", str(model_root / "calculator"), "-cf", str(archive), "."], check=True)
    model = curl(platform, "uploads?unpack=true", "-F", f"file=@{archive}")["uri"]
    tasks = curl(platform, "uploads", "-F", f"file=@{model_root / 'tasks.jsonl'}")["uri"]
    spec = calculator_spec(model_root, num_updates=2)
    spec["model"]["source"], spec["environment"]["tasks"] = model, tasks

    job = curl(platform, "jobs", "-H", "Content-Type: application/json", "-d", json.dumps(spec))

    def ended() -> bool:
        return bool(curl(platform, f"jobs/{job['id']}")["state"] == "completed")

    eventually(ended, timeout_s=240, what="completion")
    assert model.startswith("artifact://")
    assert [v["version"] for v in curl(platform, f"jobs/{job['id']}/versions")["results"]] == [2, 1, 0]


def curl(platform: PlatformProcess, path: str, *arguments: str) -> dict[str, Any]:
    run = platform.home.read_run()
    assert run is not None
    answer = subprocess.run(
        [
            "curl",
            "--silent",
            "--show-error",
            "-H",
            f"Authorization: Bearer {platform.token}",
            *arguments,
            f"{run.web_url}/api/v1/{path}",
        ],
        check=True,
        capture_output=True,
    )
    return dict(json.loads(answer.stdout))
