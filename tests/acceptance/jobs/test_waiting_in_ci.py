"""A pipeline waits for a job that succeeds, one that breaks, one that takes too long and one that is interrupted:
by the command line, and by the loop of docs/automation.md as it stands."""

import json
import re
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from seamlessflow.core.lifecycle.jobs import JobState
from tests.acceptance.conftest import calculator_spec
from tests.acceptance.platform_process import PlatformProcess
from tests.acceptance.steering import command, web_url

GUIDE = Path(__file__).parents[3] / "docs" / "automation.md"
LOOP = re.compile(r"### A loop that waits\n\n```sh\n(.*?)```", re.DOTALL)
NEVER_S = 120  # waiting hangs
MANY_UPDATES = 10_000  # more than come to an end before a command has started


@pytest.fixture
def spec(model_root: Path) -> dict[str, Any]:
    return calculator_spec(model_root, num_updates=1, groups_per_batch=2)


def broken(spec: dict[str, Any]) -> dict[str, Any]:
    """Return a spec whose agents cannot start."""
    agent = [sys.executable, "/srv/agents/agent.py"]
    environment = {"name": "command", "command": agent, "pause_after_dropped_groups": 1}
    return spec | {
        "environment": {"tasks": spec["environment"]["tasks"]} | environment,
        "rollout": spec["rollout"] | {"group_size": 2, "max_concurrent_sessions": 2},
    }


def test_each_end_of_a_wait_has_its_exit_code_and_the_id_of_the_job(
    platform: PlatformProcess, spec: dict[str, Any], tmp_path: Path
) -> None:
    (tmp_path / "good.yaml").write_text(yaml.safe_dump(spec))
    (tmp_path / "broken.yaml").write_text(yaml.safe_dump(broken(spec)))
    endless = spec | {"train": spec["train"] | {"num_updates": MANY_UPDATES}}
    (tmp_path / "endless.yaml").write_text(yaml.safe_dump(endless))

    def submitted(name: str, *options: str) -> tuple[int, dict[str, Any], str]:
        done = command(platform, "submit", str(tmp_path / f"{name}.yaml"), "--wait", "--json", *options)
        return done.returncode, json.loads(done.stdout), done.stderr

    code, job, _ = submitted("good", "--timeout", str(NEVER_S))
    assert (code, job["state"]) == (0, "completed")

    code, job, errors = submitted("broken", "--timeout", str(NEVER_S))
    assert (code, job["state"], job["paused_by"]) == (5, "paused", "platform"), errors
    assert "agent.py" in job["state_reason"]
    assert f"seamlessflow jobs resume {job['id']}" in errors.splitlines()[-1]
    assert waited_by_the_loop(platform, job["id"], tmp_path) == (5, job["state_reason"])
    with platform.client() as client:
        assert job["id"] in [one["id"] for one in client.job_list(needs_attention=True)]
        client.job_edit(job["id"], "cancel")

    code, job, _ = submitted("endless", "--timeout", "0.01")
    assert code == 4
    assert command(platform, "jobs", "cancel", job["id"], "--wait").returncode == 0
    assert waited_by_the_loop(platform, job["id"], tmp_path) == (3, "")

    code, job = interrupted(platform, tmp_path / "endless.yaml")
    assert code == 130
    assert command(platform, "jobs", "cancel", job["id"]).returncode == 0


def interrupted(platform: PlatformProcess, spec: Path) -> tuple[int, dict[str, Any]]:
    """Press Ctrl-C while a submission waits; return its exit code and the job that it printed."""
    with subprocess.Popen(
        [sys.executable, "-m", "seamlessflow.cli", "submit", str(spec), "--wait", "--json"],
        env=platform.environ | {"SEAMLESSFLOW_HOME": str(platform.home.root)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as waiting:
        assert waiting.stderr is not None
        states = (*map(str, JobState),)
        assert any(line.startswith(states) for line in waiting.stderr)
        waiting.send_signal(signal.SIGINT)
        printed, _ = waiting.communicate(timeout=NEVER_S)
    return waiting.returncode, json.loads(printed)


def waited_by_the_loop(platform: PlatformProcess, job_id: str, folder: Path) -> tuple[int, str]:
    """Run the loop of the guide; return its exit code and what it printed."""
    found = LOOP.search(GUIDE.read_text())
    assert found is not None
    reach = {"SEAMLESSFLOW_WEB_URL": web_url(platform), "SEAMLESSFLOW_TOKEN": platform.token, "JOB": job_id}
    done = subprocess.run(
        ["bash", "-euo", "pipefail", "-c", found[1]],
        env=platform.environ | reach,
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=NEVER_S,
        check=False,
    )
    return done.returncode, done.stdout.strip()
