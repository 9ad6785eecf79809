"""The fork server imports what trainers, engines and agents need without CUDA, and what it forks computes on the
device."""

import json
import tempfile
from collections.abc import Iterator

import pytest
import torch

from seamlessflow_workers.process.fork_server.client import PROGRAMS, preload_of
from tests.fixtures.forked_programs import ForkedPrograms
from tests.fixtures.trainer_harness import DEADLINE_S, child_environment
from tests.gpu.forked_check import NUM_NUMBERS

NUM_CHILDREN = 2


@pytest.fixture(scope="module")
def programs(device: torch.device) -> Iterator[ForkedPrograms]:
    """A fork server that answers that it may be forked; it refuses if an import initialised CUDA."""
    started = ForkedPrograms(
        [preload_of(program) for program in PROGRAMS], child_environment() | {"DS_ACCELERATOR": device.type}
    )
    yield started
    started.close()


def test_forked_programs_compute_on_the_device_at_the_same_time(
    device: torch.device, programs: ForkedPrograms
) -> None:
    with tempfile.TemporaryFile() as output:
        children = [
            programs.start(
                "tests.gpu.forked_check",
                [device.type],
                environment=child_environment(),
                output=output.fileno(),
                descriptors={},
            )
            for _ in range(NUM_CHILDREN)
        ]
        assert [child.wait(DEADLINE_S) for child in children] == [0] * NUM_CHILDREN
        output.seek(0)
        rows = [json.loads(line) for line in output.read().splitlines() if line.startswith(b"{")]
    expected = {
        "was_initialized": False,
        "total": float(sum(number * number for number in range(NUM_NUMBERS))),
        "is_initialized": device.type == "cuda",
    }
    assert rows == [expected] * NUM_CHILDREN
