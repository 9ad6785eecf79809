"""A third party's package that the operator installed and a job names is trained through all
planes."""

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import httpx
import pytest

from seamlessflow.client.errors import ApiError
from seamlessflow.core.lifecycle.jobs import TERMINAL_JOB_STATES
from tests.acceptance.conftest import calculator_spec
from tests.acceptance.platform_process import PlatformProcess, eventually

NUM_UPDATES = 18
THIRD = NUM_UPDATES // 3
GAIN = 0.1  # of 0.24 that were seen


def extended_spec(model_root: Path, **environment: Any) -> dict[str, Any]:
    spec = calculator_spec(model_root, num_updates=NUM_UPDATES, groups_per_batch=8)
    spec["name"] = "extended"
    spec["environment"] |= {"name": "one_question", "reward": "even_digits", "max_turns": 1} | environment
    spec["algorithm"] |= {"advantage": "rank", "advantage_options": {"spread": 1.5}}
    return spec


def test_a_job_on_an_installed_extension_raises_its_reward(
    platform: PlatformProcess, model_root: Path
) -> None:
    with platform.client() as client:
        job = client.job_submit(extended_spec(model_root))
        eventually(
            lambda: client.job_get(job["id"])["state"] in TERMINAL_JOB_STATES, timeout_s=270, what="the end"
        )
        ended = client.job_get(job["id"])
        assert ended["state"] == "completed", ended["state_reason"]
        metrics = client.job_part(job["id"], "metrics", names="reward/mean")["metrics"]

    values = metrics["reward/mean"]["value"]
    print([round(value, 2) for value in values])
    assert ended["spec"]["environment"]["options"] == {"prefix": ""}  # defaults are stored with the job
    assert sum(values[-THIRD:]) / THIRD > sum(values[:THIRD]) / THIRD + GAIN


def test_names_and_options_that_are_not_installed_are_refused_by_field(
    platform: PlatformProcess, model_root: Path
) -> None:
    spec = extended_spec(model_root, name="one_qestion")
    spec["algorithm"]["advantage"] = "os.system"
    with platform.client() as client:
        with pytest.raises(ApiError) as unknown:
            client.job_submit(spec)
        with pytest.raises(ApiError) as misfit:
            client.job_submit(extended_spec(model_root, options={"prefx": "Please: "}))

    assert "environment.name: 'one_qestion' is not installed here; did you mean 'one_question'?" in str(
        unknown.value
    )
    assert "algorithm.advantage: 'os.system' is not installed here" in str(unknown.value)
    assert "accepted: group, leave_one_out" in str(unknown.value)
    assert "environment.options.prefx: unknown key 'prefx'; did you mean 'prefix'?" in str(misfit.value)


def test_the_api_lists_the_accepted_names(platform: PlatformProcess) -> None:
    run = platform.home.read_run()
    assert run is not None
    answer = httpx.get(
        f"{run.web_url}/api/v1/extensions", headers={"Authorization": f"Bearer {platform.token}"}
    )
    listed = answer.raise_for_status().json()

    environments = {one["name"]: one for one in listed["environments"]}
    assert set(environments) == {"arithmetic", "calculator", "command", "one_question"}
    assert environments["one_question"]["options"]["properties"]["prefix"]["maxLength"] == 200
    assert [one["name"] for one in listed["advantages"]] == ["rank"]
    assert [(one["name"], one["is_built_in"]) for one in listed["rewards"]] == [
        ("even_digits", False),
        ("exact_answer", True),
    ]


def test_doctor_lists_the_installed_extensions(platform: PlatformProcess) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "seamlessflow.cli", "doctor"],
        env=os.environ | platform.environ | {"SEAMLESSFLOW_HOME": str(platform.home.root)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert "even_digits, one_question, rank" in done.stdout, done.stdout + done.stderr
