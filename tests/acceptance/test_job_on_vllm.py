"""A short job whose engines are vLLM's, through the whole platform."""

from pathlib import Path

import pytest

from seamlessflow.core.lifecycle.jobs import TERMINAL_JOB_STATES
from tests.acceptance.conftest import calculator_spec
from tests.acceptance.platform_process import PlatformProcess, eventually

NUM_UPDATES = 4


@pytest.mark.usefixtures("vllm_interpreter")
def test_job_learns_on_vllm_engines_that_are_updated_in_place_and_hand_over(
    platform: PlatformProcess, model_root: Path
) -> None:
    spec = calculator_spec(model_root, num_updates=NUM_UPDATES)
    spec["name"], spec["rollout"]["engine"] = "on vllm", "vllm"
    spec["rollout"]["max_num_seqs"] = 12
    with platform.client() as client:
        job = client.job_submit(spec)

        eventually(
            lambda: platform.find("seamlessflow_workers.rollout.vllm.main"), timeout_s=120, what="vLLM"
        )
        eventually(
            lambda: client.job_get(job["id"])["state"] in TERMINAL_JOB_STATES, timeout_s=270, what="the end"
        )

        ended = client.job_get(job["id"])
        assert ended["state"] == "completed", ended["state_reason"]
        assert ended["latest_version"] == NUM_UPDATES
        assert client.job_part(job["id"], "audit")["ok"]
        assert client.job_part(job["id"], "summary")["num_turns_handed_over"] > 0
