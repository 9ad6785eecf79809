"""A short job runs on vLLM engines through the whole platform."""

from pathlib import Path

import pytest

from seamlessflow.core.lifecycle.jobs import TERMINAL_JOB_STATES
from tests.acceptance.conftest import calculator_spec
from tests.acceptance.platform_process import PlatformProcess, eventually

MIN_UPDATES, MAX_UPDATES = 4, 400


@pytest.mark.usefixtures("vllm_interpreter")
def test_a_job_trains_on_vllm_engines_that_update_in_place_and_hand_over(
    platform: PlatformProcess, model_root: Path
) -> None:
    spec = calculator_spec(model_root, num_updates=MAX_UPDATES)
    spec["name"], spec["rollout"]["engine"] = "on vllm", "vllm"
    spec["rollout"]["max_num_seqs"] = 12
    with platform.client() as client:
        job_id = client.job_submit(spec)["id"]

        def num_handed_over() -> int:
            return int(client.job_part(job_id, "summary")["num_turns_handed_over"])

        def has_come_far_enough() -> bool:
            job = client.job_get(job_id)
            assert job["state"] not in TERMINAL_JOB_STATES, job["state_reason"]
            return job["latest_version"] >= MIN_UPDATES and num_handed_over() > 0

        eventually(
            lambda: platform.find("seamlessflow_workers.rollout.vllm.main"), timeout_s=120, what="vLLM"
        )
        # A turn is handed over when training is due while it decodes: soon, but not in any one update.
        eventually(has_come_far_enough, timeout_s=240, what="updates and a turn handed over")
        client.job_edit(job_id, "cancel", reason="seen enough")
        eventually(
            lambda: client.job_get(job_id)["state"] == "cancelled", timeout_s=60, what="the job is cancelled"
        )

        assert client.job_part(job_id, "audit")["ok"]
