"""Which cores each rank of a trainer gets, and that it keeps to them."""

import os
import threading

import pytest

from seamlessflow.core.liveness.device_errors import failed_device, is_device_error
from seamlessflow_workers.process.device_environment import trainer_devices, trainer_environment
from seamlessflow_workers.train.distributed.seats import device_failure, pin_to_cores, rank_cores
from tests.fixtures.machine_devices import core_device, gpu


def test_a_rank_gets_the_cores_of_its_device() -> None:
    devices = [gpu(0, cores=[0, 1]), gpu(1, cores=[2, 3])]
    assert rank_cores(devices, 2) == [[0, 1], [2, 3]]
    assert rank_cores(devices, 1) == [[0, 1]]


def test_more_ranks_than_devices_share_all_cores_out() -> None:
    assert rank_cores([core_device(0, 1, 2, 3)], 2) == [[0, 1], [2, 3]]
    assert rank_cores([core_device(5)], 2) == [[5], [5]]


def test_nothing_is_said_of_cores_that_are_not_known() -> None:
    assert rank_cores([], 2) == [[], []]
    assert rank_cores([gpu(0), gpu(1)], 2) == [[], []]


def test_a_trainer_reads_the_devices_that_it_was_started_with() -> None:
    devices = [gpu(1, cores=[2]), gpu(0, cores=[1], numa=0)]
    assert trainer_devices(trainer_environment(devices)) == devices
    assert trainer_devices({}) == []


def test_a_rank_that_loses_its_device_names_it_as_the_supervisor_reads_it() -> None:
    devices = [gpu(0), gpu(1)]
    said = f"rank lost: {device_failure(1, trainer_environment(devices))}"
    assert failed_device(said, devices) == devices[1]
    assert is_device_error(device_failure(1, {}))


@pytest.mark.parametrize(
    "reason",
    [
        "CUDA error: out of memory",
        "CUDA error: an illegal memory access was encountered",
        "all CUDA-capable devices are busy or unavailable",
        "the trainer was killed by SIGKILL",
    ],
)
def test_what_a_program_can_cause_is_no_fault_of_the_device(reason: str) -> None:
    assert failed_device(reason, [gpu(0)]) is None


def test_a_seat_binds_every_thread_and_those_that_it_starts_later() -> None:
    allowed = sorted(os.sched_getaffinity(0))
    go_on, cores_seen = threading.Event(), list[set[int]]()

    def wait() -> None:
        go_on.wait()
        cores_seen.append(os.sched_getaffinity(0))

    before = threading.Thread(target=wait)
    before.start()
    threads_before = os.environ.get("OMP_NUM_THREADS")
    try:
        pin_to_cores([])
        assert sorted(os.sched_getaffinity(0)) == allowed
        pin_to_cores(allowed[:1])
        assert os.environ["OMP_NUM_THREADS"] == "1"
        later = threading.Thread(target=wait)
        later.start()
        go_on.set()
        before.join()
        later.join()
        assert cores_seen == [{allowed[0]}] * 2
    finally:
        go_on.set()
        pin_to_cores(allowed)
        if threads_before is None:
            del os.environ["OMP_NUM_THREADS"]
        else:
            os.environ["OMP_NUM_THREADS"] = threads_before
