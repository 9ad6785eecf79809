"""A device that is lost, or counts errors, is cordoned; a person or a new boot readmits it if it is well."""

from collections.abc import Sequence

import pytest

from seamlessflow.core.types.devices import Device
from seamlessflow_workers.supervisor.device_watch import DeviceWatch
from seamlessflow_workers.supervisor.nvml import DeviceHealth
from tests.fixtures.machine_devices import gpu

FIRST, SECOND = DEVICES = (gpu(0), gpu(1))
LOST = DeviceHealth("the driver reports: GPU is lost")


class Inventory:
    """Devices that a test loses."""

    def __init__(self) -> None:
        self.health = {device.id: DeviceHealth() for device in DEVICES}
        self.num_changes = 0

    def __call__(self, devices: Sequence[Device]) -> dict[str, DeviceHealth]:
        return {device.id: self.health[device.id] for device in devices}

    def changed(self) -> None:
        self.num_changes += 1

    def watch(self) -> DeviceWatch:
        return DeviceWatch(DEVICES, probe=self, on_changed=self.changed)


def usable(watch: DeviceWatch) -> list[Device]:
    return list(watch.usable)


@pytest.fixture
def inventory() -> Inventory:
    return Inventory()


def test_a_device_that_two_probes_find_lost_is_cordoned_and_no_other(inventory: Inventory) -> None:
    watch = inventory.watch()
    inventory.health[SECOND.id] = LOST
    watch.take(inventory(DEVICES))
    assert usable(watch) == [*DEVICES]
    watch.take(inventory(DEVICES))
    assert usable(watch) == [FIRST]
    assert watch.problems == {SECOND.id: LOST.problem}
    watch.take(inventory(DEVICES))
    assert inventory.num_changes == 1


def test_a_driver_that_is_busy_for_a_moment_costs_no_device(inventory: Inventory) -> None:
    watch = inventory.watch()
    for health in (LOST, DeviceHealth(), LOST, DeviceHealth()):
        inventory.health[SECOND.id] = health
        watch.take(inventory(DEVICES))
    assert usable(watch) == [*DEVICES]


def test_errors_from_before_the_boot_are_forgiven_and_new_ones_are_not(inventory: Inventory) -> None:
    inventory.health[FIRST.id] = DeviceHealth(num_uncorrected=5)
    watch = inventory.watch()
    watch.take(inventory(DEVICES))
    assert usable(watch) == [*DEVICES]
    inventory.health[FIRST.id] = DeviceHealth(num_uncorrected=7)
    watch.take(inventory(DEVICES))
    assert watch.problems == {FIRST.id: "its memory had 2 errors that it could not correct"}


def test_a_device_that_is_ill_at_the_boot_is_not_used_and_a_boot_that_finds_it_well_uses_it(
    inventory: Inventory,
) -> None:
    inventory.health[FIRST.id] = LOST
    assert usable(inventory.watch()) == [SECOND]
    inventory.health[FIRST.id] = DeviceHealth()
    assert usable(inventory.watch()) == [*DEVICES]


def test_a_childs_last_words_cordon_the_device_that_they_name_or_its_only_one(inventory: Inventory) -> None:
    watch = inventory.watch()
    watch.blame("the engine exited with code 1; last line: CUDA error: out of memory", [FIRST])
    watch.blame("rank lost; last line: uncorrectable ECC error encountered", DEVICES)
    assert usable(watch) == [*DEVICES]

    watch.blame(f"device {SECOND.id}: CUDA error: uncorrectable ECC error encountered", DEVICES)
    assert usable(watch) == [FIRST]
    watch.blame("CUDA error: uncorrectable ECC error encountered", [FIRST])
    assert usable(watch) == []
    assert watch.problems[FIRST.id].startswith("a process failed on it: CUDA error")


def test_a_release_readmits_a_device_once_it_is_well(inventory: Inventory) -> None:
    watch = inventory.watch()
    inventory.health[FIRST.id] = DeviceHealth(LOST.problem, num_uncorrected=2)
    watch.take(inventory(DEVICES))
    (problem,) = watch.problems.values()

    watch.release({FIRST.id: problem})
    watch.take(inventory(DEVICES))
    assert usable(watch) == [SECOND]

    inventory.health[FIRST.id] = DeviceHealth(num_uncorrected=2)
    watch.take(inventory(DEVICES))
    assert usable(watch) == [*DEVICES]
    watch.take(inventory(DEVICES))
    assert usable(watch) == [*DEVICES], "the errors that were forgiven do not count again"


def test_a_release_of_another_problem_readmits_nothing(inventory: Inventory) -> None:
    watch = inventory.watch()
    watch.blame("GPU is lost", [FIRST])
    watch.release({FIRST.id: "what it was before"})
    watch.take(inventory(DEVICES))
    assert usable(watch) == [SECOND]
