"""The engines of a job take new weights from the trainer's memory, through the whole platform."""

from pathlib import Path

import pytest

from tests.acceptance.conftest import calculator_spec
from tests.acceptance.platform_process import PlatformProcess, eventually

MIN_TRANSFERS, MAX_UPDATES = 2, 400  # an engine need not serve every version


@pytest.mark.parametrize("wanted, taken", [("auto", "ipc"), ("gloo", "gloo")])
def test_a_job_trains_on_weights_that_come_from_memory(
    platform: PlatformProcess, model_root: Path, wanted: str, taken: str
) -> None:
    spec = calculator_spec(model_root, num_updates=MAX_UPDATES, weight_transport=wanted)
    spec["name"] = f"weights by {wanted}"
    name = f"perf/weights_{taken}"
    with platform.client() as client:
        job_id = client.job_submit(spec)["id"]

        def points() -> dict[str, list[float]]:
            metrics = client.job_part(job_id, "metrics")["metrics"]
            return {part: metrics.get(f"{name}_{part}", {"value": []})["value"] for part in ("bytes", "s")}

        eventually(lambda: len(points()["s"]) >= MIN_TRANSFERS, timeout_s=240, what="weights from memory")
        client.job_edit(job_id, "cancel", reason="seen enough")
        eventually(
            lambda: client.job_get(job_id)["state"] == "cancelled", timeout_s=60, what="the job is cancelled"
        )
        audit = client.job_part(job_id, "audit")
        came = points()
        events = client.job_part(job_id, "events", limit=500)["results"]

    assert audit["ok"], audit
    assert min(came["bytes"]) > 0
    assert min(came["s"]) > 0
    # An engine may be told of a version when the next one is out already, or when its trainer's turn or job has just
    # ended: it reads the files, and says so.
    reasons = {event["reason"] for event in events if event["kind"] == "weights.fallback"}
    expected = (
        "no trainer offers this version",
        "is no longer offered",
        "the trainer that offered the weights",
    )
    assert all(any(words in reason for words in expected) for reason in reasons), reasons
