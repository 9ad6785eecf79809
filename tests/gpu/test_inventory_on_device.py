"""What the supervisor finds of the card: it agrees with CUDA, which it does not touch."""

import json
import subprocess
import sys
from typing import Any

import pytest
import torch

from tests.gpu.conftest import Figures

FIND = """
import json, time
from msgspec import to_builtins
from seamlessflow_workers.process.fork_server.preloading import is_cuda_initialized
from seamlessflow_workers.supervisor.inventory import probe_devices, visible_gpus
import os
began_s = time.monotonic()
gpus = visible_gpus(os.environ)
found_s = time.monotonic()
health = probe_devices(gpus)
print(json.dumps({
    "gpus": to_builtins(gpus), "problems": {id: one.problem for id, one in health.items()},
    "find_s": found_s - began_s, "probe_s": time.monotonic() - found_s, "touched": is_cuda_initialized(),
}))
"""


@pytest.fixture
def found() -> dict[str, Any]:
    done = subprocess.run(
        [sys.executable, "-c", FIND], capture_output=True, text=True, check=True, timeout=60
    )
    return dict(json.loads(done.stdout.splitlines()[-1]))


def test_the_inventory_agrees_with_cuda_and_does_not_touch_it(
    device: torch.device, found: dict[str, Any], figures: Figures
) -> None:
    if device.type != "cuda":
        assert found["gpus"] == []
        return
    assert not found["touched"]
    told = [torch.cuda.get_device_properties(number) for number in range(torch.cuda.device_count())]
    assert [gpu["id"] for gpu in found["gpus"]] == [f"GPU-{properties.uuid}" for properties in told]
    assert [gpu["name"] for gpu in found["gpus"]] == [properties.name for properties in told]
    for gpu, properties in zip(found["gpus"], told, strict=True):
        assert 0 <= gpu["memory_bytes"] - properties.total_memory < properties.total_memory / 10
        assert gpu["cores"]
    assert found["problems"] == {gpu["id"]: "" for gpu in found["gpus"]}
    figures["inventory"] = {"find_s": found["find_s"], "probe_s": found["probe_s"], "gpus": found["gpus"]}
