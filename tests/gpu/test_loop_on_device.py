"""The whole loop on one device: real planes, an engine and DeepSpeed, weights carried from one to the other.

Leaves `build/gpu/loop-<device>-<dtype>-<engine>.json` with the figures. The job, its seed and what is asked of it
are the same on every device.
"""

import contextlib
import json
import os
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import psutil
import pytest
import torch

from tests.acceptance.conftest import calculator_spec
from tests.acceptance.models import example_model, example_tasks
from tests.acceptance.platform_process import PlatformProcess, new_platform

ROOT = Path(__file__).parents[2]
NUM_UPDATES = 4
# Largest difference of one token's logprob between the engine that sampled it and the trainer, by number format: both
# compute the same weights with other kernels.
MAX_LOGPROB_GAP = {"float32": 1e-3, "bfloat16": 0.5}
MIN_BYTES_ON_CARD = 200 * 1024**2  # an engine's and a trainer's CUDA context alone are more


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("models")
    example_model(root / "calculator")
    example_tasks(root / "tasks.jsonl")
    return root


@pytest.fixture
def installation(device: str, models: Path, tmp_path: Path) -> Iterator[PlatformProcess]:
    own = new_platform(tmp_path / "home", model_root=models)
    platform = replace(own, environ=own.environ | {"SEAMLESSFLOW_DEVICE": device})
    platform.start()
    yield platform
    platform.stop()


@pytest.mark.parametrize("engine", ["embedded", "vllm"])
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_job_learns_from_its_own_tokens_on_this_device(
    device: str, installation: PlatformProcess, models: Path, dtype: str, engine: str
) -> None:
    spec = calculator_spec(models, num_updates=NUM_UPDATES)
    spec["model"]["dtype"], spec["rollout"]["engine"] = dtype, engine
    before_bytes = _bytes_on_card(device)
    started_at = time.monotonic()
    seen: dict[str, str] = {}
    most_bytes = before_bytes
    with installation.client() as client:
        job = client.job_submit(spec)
        for state in client.job_watch(job["id"]):
            job = state
            seen |= _devices_of_children(installation)
            most_bytes = max(most_bytes, _bytes_on_card(device))
        took_s = time.monotonic() - started_at
        metrics = client.job_part(job["id"], "metrics")["metrics"]
        versions = [row["version"] for row in client.job_part(job["id"], "versions")["results"]]

    assert job["state"] == "completed", job["state_reason"]
    assert versions == list(range(NUM_UPDATES, -1, -1))
    assert seen == {"engine": device, "trainer": device}
    gaps = metrics["train/mismatch_max"]["value"]  # there is a point where fresh tokens were compared
    assert max(gaps) < MAX_LOGPROB_GAP[dtype]
    if device == "cuda":
        assert most_bytes - before_bytes > MIN_BYTES_ON_CARD
    _report(
        device, {"seconds": took_s, "logprob_gap_max": max(gaps), "card_bytes": most_bytes - before_bytes}
    )


def _devices_of_children(installation: PlatformProcess) -> dict[str, str]:
    """What the children that run now were told: engines by their flag, trainers by the devices they may see."""
    found = {}
    for process in installation.find("seamlessflow_workers.rollout."):
        with contextlib.suppress(psutil.NoSuchProcess):
            words = process.cmdline()
            found["engine"] = words[words.index("--device") + 1]
    for process in installation.find("seamlessflow_workers.train"):
        with contextlib.suppress(psutil.NoSuchProcess):
            found["trainer"] = "cpu" if process.environ().get("CUDA_VISIBLE_DEVICES") == "" else "cuda"
    return found


def _bytes_on_card(device: str) -> int:
    """Of all processes: those of the job hold contexts of their own."""
    if device == "cpu":
        return 0
    free, total = torch.cuda.mem_get_info()
    return total - free


def _report(variant: str, figures: dict[str, Any]) -> None:
    path = ROOT / "build" / "gpu" / f"loop-{variant}.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    card = torch.cuda.get_device_name() if torch.cuda.is_available() else "none"
    path.write_text(json.dumps({"card": card, "cores": os.cpu_count(), **figures}, indent=2) + "\n")
