"""What a child sees of the machine's devices."""

from seamlessflow_workers.process.device_environment import devices_cores, devices_environment
from tests.fixtures.machine_devices import core_device, gpu


def test_gpus_are_named_by_uuid_and_threads_follow_their_cores() -> None:
    devices = [gpu(3, cores=[8, 9]), gpu(1, cores=[4, 5])]
    assert devices_environment(devices) == {
        "CUDA_DEVICE_ORDER": "PCI_BUS_ID",
        "CUDA_VISIBLE_DEVICES": f"{devices[0].id},{devices[1].id}",
        "DS_ACCELERATOR": "cuda",
        "OMP_NUM_THREADS": "4",
    }
    assert devices_cores(devices, otherwise={0, 1}) == {4, 5, 8, 9}


def test_core_sets_hide_every_gpu() -> None:
    devices = [core_device(1), core_device(2, 3)]
    assert devices_environment(devices) == {
        "CUDA_VISIBLE_DEVICES": "",
        "DS_ACCELERATOR": "cpu",
        "OMP_NUM_THREADS": "3",
    }
    assert devices_cores(devices[:1], otherwise={0}) == {1}


def test_unknown_cores_leave_those_of_the_machine_and_their_threads() -> None:
    assert "OMP_NUM_THREADS" not in devices_environment([gpu(0)])
    assert devices_cores([gpu(0)], otherwise=[0, 1]) == {0, 1}
