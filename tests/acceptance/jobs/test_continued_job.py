"""A job that completed is continued by a new one, which serves what was learned from its first turn on."""

from pathlib import Path
from typing import Any

import pytest

from seamlessflow.client import Client
from tests.acceptance.conftest import calculator_spec
from tests.acceptance.platform_process import PlatformProcess

NUM_UPDATES = 3


def rows(client: Client, job_id: str, kind: str) -> list[dict[str, Any]]:
    return list(client._pages(f"jobs/{job_id}/{kind}"))


@pytest.mark.parametrize("lora", [None, {"rank": 4}], ids=["all weights", "an adapter"])
def test_a_new_job_goes_on_where_a_completed_one_stopped(
    platform: PlatformProcess, model_root: Path, lora: dict[str, int] | None
) -> None:
    train: dict[str, Any] = {} if lora is None else {"lora": lora}
    with platform.client() as client:
        older = client.job_submit(calculator_spec(model_root, num_updates=NUM_UPDATES, **train))
        assert client.job_wait(older["id"])["latest_version"] == NUM_UPDATES
        spec = calculator_spec(model_root, num_updates=2, continue_from=older["id"], **train)
        job = client.job_wait(client.job_submit(spec)["id"])
        versions = {one["version"]: one for one in rows(client, job["id"], "versions")}
        sampled = [one["min_version"] for one in rows(client, job["id"], "groups") if one["batch_number"]]

    assert job["latest_version"] == 3, "version 1 is what the older job had learned"
    assert [versions[n]["optimizer_step"] for n in (1, 2, 3)] == [
        NUM_UPDATES,
        NUM_UPDATES + 1,
        NUM_UPDATES + 2,
    ]
    assert sampled
    assert min(sampled) >= 1, "no turn was sampled by the initial model"
