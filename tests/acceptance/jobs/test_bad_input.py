"""Bad input is refused with one clear sentence, and nothing is left half-made."""

import os
import shutil
from pathlib import Path
from typing import Any

import httpx
import pytest

from seamlessflow.client import ApiError, Client
from tests.acceptance.conftest import calculator_spec
from tests.acceptance.platform_process import PlatformProcess, eventually


def refusal(client: Client, spec: dict[str, Any]) -> ApiError:
    num_before = len(list(client.job_list()))
    with pytest.raises(ApiError) as caught:
        client.job_submit(spec)
    assert len(list(client.job_list())) == num_before
    return caught.value


def test_unknown_key_is_refused_with_the_nearest_name(platform: PlatformProcess, model_root: Path) -> None:
    spec = calculator_spec(model_root, num_updates=1)
    spec["rollout"]["group_sise"] = 4
    with platform.client() as client:
        error = refusal(client, spec)

    assert error.status == 400
    assert "group_size" in str(error)


def test_model_that_does_not_exist_is_named(platform: PlatformProcess, model_root: Path) -> None:
    spec = calculator_spec(model_root, num_updates=1)
    spec["model"]["source"] = str(model_root / "absent")
    with platform.client() as client:
        error = refusal(client, spec)

    assert error.status == 400
    assert "model.source" in str(error)
    assert "absent" in str(error)


def test_a_job_with_a_tag_that_no_machine_has_waits_and_says_why(
    platform: PlatformProcess, model_root: Path
) -> None:
    spec = calculator_spec(model_root, num_updates=1) | {"placement": {"train": ["tpu"]}}
    with platform.client() as client:
        job = client.job_submit(spec)

        def reason() -> str:
            return str(client.job_get(job["id"])["waiting_reason"])

        shown = eventually(reason, timeout_s=20, what="a waiting reason")
        assert "tpu" in shown
        client.job_edit(job["id"], "cancel")
        eventually(
            lambda: client.job_get(job["id"])["state"] == "cancelled", timeout_s=20, what="cancellation"
        )


def test_broken_chat_request_is_answered_as_openai_does(platform: PlatformProcess) -> None:
    unauthorised = httpx.post(f"{platform.gateway_url}/v1/chat/completions", json={"messages": []})
    assert unauthorised.status_code == 401
    assert unauthorised.json()["error"]["message"]


def test_a_model_that_is_damaged_after_submission_pauses_its_job_and_is_no_fault_of_a_machine(
    platform: PlatformProcess, model_root: Path
) -> None:
    with platform.client() as client:
        for number in range(3):  # as many jobs as would put a machine into quarantine
            folder = Path(shutil.copytree(model_root / "calculator", model_root / f"damaged-{number}"))
            spec = calculator_spec(model_root, num_updates=2)
            spec["model"]["source"] = str(folder)
            job_id = client.job_submit(spec)["id"]
            os.truncate(folder / "model.safetensors", 5000)

            def paused(job_id: str = job_id) -> dict[str, Any]:
                job = client.job_get(job_id)
                return job if job["paused_by"] == "platform" else {}

            job = eventually(paused, timeout_s=60, what="the pause of the job with the damaged model")
            assert "cannot use what the job names" in job["state_reason"]
            assert "model.safetensors cannot be read as safetensors" in job["state_reason"]
        assert all(machine["quarantine"] is None for machine in client.machine_list())
        sound = client.job_submit(calculator_spec(model_root, num_updates=1))
        assert client.job_wait(sound["id"])["latest_version"] == 1, "the machines work"
