"""The whole product on the device: a job learns from tokens sampled there by a trainer that computes there."""

import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from seamlessflow.core.lifecycle.jobs import TERMINAL_JOB_STATES
from seamlessflow_workers.supervisor.capabilities import find_vllm, vllm_python
from tests.acceptance.conftest import calculator_spec
from tests.acceptance.models import example_model, example_tasks
from tests.acceptance.platform_process import PlatformProcess, eventually, new_platform
from tests.gpu.conftest import Figures
from tests.gpu.test_engine_on_device import bytes_used

NUM_UPDATES = 20
NUM_COMPARED = 4  # updates at either end
RISE = 0.15
JOB_TIMEOUT_S = 400.0
# What a card that two engines and a trainer share holds at the least: their contexts alone.
LEAST_BYTES_ON_CARD = 500 << 20
MISMATCHES = {"float32": 1e-3, "bfloat16": 1.0}


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("models")
    example_model(root / "calculator")
    example_tasks(root / "tasks.jsonl")
    return root


@pytest.fixture(scope="module")
def installation(
    device: torch.device, models: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[PlatformProcess]:
    """Two machines that share the device, and one that runs agents."""
    with new_platform(tmp_path_factory.mktemp("home"), model_root=models) as platform:
        # Engines of vLLM each take a share of the card and leave the trainer its own.
        platform.environ |= {"SEAMLESSFLOW_DEVICE": device.type, "SEAMLESSFLOW_GPU_MEMORY_SHARE": "0.3"}
        platform.start()
        yield platform


@pytest.mark.parametrize(
    "engine,dtype", [("embedded", "float32"), ("embedded", "bfloat16"), ("vllm", "bfloat16")]
)
def test_job_learns_on_the_device(
    device: torch.device,
    installation: PlatformProcess,
    models: Path,
    figures: Figures,
    engine: str,
    dtype: str,
) -> None:
    if engine == "vllm" and (problem := find_vllm(vllm_python(os.environ), device=device.type).problem):
        pytest.skip(f"vLLM was not tried: {problem}")
    spec = spec_of(models, engine=engine, dtype=dtype)
    bytes_before = bytes_used(device)
    started_at = time.monotonic()
    with installation.client() as client:
        job = client.job_submit(spec)["id"]
        engines = eventually(
            lambda: installation.find("seamlessflow_workers.rollout", f"--device {device.type}"),
            timeout_s=120,
            what="an engine on the device",
        )
        bytes_most = 0

        def has_ended() -> bool:
            nonlocal bytes_most
            bytes_most = max(bytes_most, bytes_used(device) - bytes_before)
            return client.job_get(job)["state"] in TERMINAL_JOB_STATES

        eventually(has_ended, timeout_s=JOB_TIMEOUT_S, what="the end of the job")
        seconds = time.monotonic() - started_at
        ended = client.job_get(job)
        metrics = client.job_part(job, "metrics")["metrics"]
        summary, audit = client.job_part(job, "summary"), client.job_part(job, "audit")

    assert engines
    assert ended["state"] == "completed", ended["state_reason"]
    assert ended["latest_version"] == NUM_UPDATES
    assert audit["ok"], audit
    first, last = rewards_at_the_ends(metrics)
    mismatch = max(metrics["train/mismatch_max"]["value"])
    figures[f"job {engine} {dtype}"] = {
        "s": round(seconds, 1),
        "versions": ended["latest_version"],
        "reward": [round(first, 3), round(last, 3)],
        "mismatch max": mismatch,
        "turns handed over": summary["num_turns_handed_over"],
        "MB on the card": round(bytes_most / 1e6) if device.type == "cuda" else None,
    }
    assert last > first + RISE
    assert mismatch < MISMATCHES[dtype]
    if device.type == "cuda":
        assert bytes_most > LEAST_BYTES_ON_CARD


def spec_of(models: Path, *, engine: str, dtype: str) -> dict[str, Any]:
    spec = calculator_spec(models, num_updates=NUM_UPDATES, groups_per_batch=8)
    spec["name"] = f"{engine} {dtype}"
    spec["model"]["dtype"] = dtype
    spec["rollout"] |= {"engine": engine, "group_size": 8, "max_num_seqs": 24}
    return spec


def rewards_at_the_ends(metrics: dict[str, Any]) -> tuple[float, float]:
    values = metrics["reward/mean"]["value"]
    return sum(values[:NUM_COMPARED]) / NUM_COMPARED, sum(values[-NUM_COMPARED:]) / NUM_COMPARED
