"""A job that trains an adapter alone, through the whole platform: it learns, and only the adapter travels."""

from pathlib import Path

from seamlessflow.core.lifecycle.jobs import TERMINAL_JOB_STATES
from tests.acceptance.conftest import calculator_spec
from tests.acceptance.platform_process import PlatformProcess, eventually

NUM_UPDATES = 24
ENDS = 4  # updates at either end whose mean rewards are compared
GAIN = 0.2  # of 0.6 that were seen


def test_adapter_learns_and_travels_alone(platform: PlatformProcess, model_root: Path) -> None:
    spec = calculator_spec(model_root, num_updates=NUM_UPDATES, groups_per_batch=8, learning_rate=5e-3)
    spec["name"], spec["train"]["lora"] = "lora", {"rank": 8, "alpha": 16}
    with platform.client() as client:
        job = client.job_submit(spec)
        eventually(
            lambda: client.job_get(job["id"])["state"] in TERMINAL_JOB_STATES, timeout_s=270, what="the end"
        )
        ended = client.job_get(job["id"])
        assert ended["state"] == "completed", ended["state_reason"]
        assert client.job_part(job["id"], "audit")["ok"]
        rewards = client.job_part(job["id"], "metrics", names="reward/mean")["metrics"]["reward/mean"]
        values = rewards["value"]
        versions = client.job_part(job["id"], "versions", limit=NUM_UPDATES + 1)["results"]

    model_bytes = sum(file.stat().st_size for file in (model_root / "calculator").glob("*.safetensors"))
    assert all(0 < version["num_bytes"] < 0.3 * model_bytes for version in versions if version["version"])
    assert sum(values[-ENDS:]) / ENDS > sum(values[:ENDS]) / ENDS + GAIN
