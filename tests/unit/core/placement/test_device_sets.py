"""The devices of a machine are shared out to its engines."""

from hypothesis import given
from hypothesis import strategies as st

from seamlessflow.core.placement.device_sets import device_sets
from seamlessflow.core.types.devices import Device


def device(number: int, numa: int | None = None) -> Device:
    return Device(id=f"GPU-{number}", kind="cuda", name="H100", memory_bytes=1, numa=numa)


def test_devices_of_one_node_stay_together() -> None:
    mixed = [device(number, numa=number % 2) for number in range(8)]
    sets = [[int(one.id.removeprefix("GPU-")) for one in devices] for devices in device_sets(mixed, 2)]
    assert sets == [[0, 2], [4, 6], [1, 3], [5, 7]]


def test_a_machine_with_fewer_devices_than_one_engine_needs_has_no_engine() -> None:
    assert device_sets([device(0)], 2) == []
    assert device_sets([], 1) == []


@given(nodes=st.lists(st.none() | st.integers(0, 3), max_size=12), num_each=st.integers(1, 6))
def test_every_set_is_full_and_no_device_is_shared(nodes: list[int | None], num_each: int) -> None:
    devices = [device(number, numa) for number, numa in enumerate(nodes)]
    sets = device_sets(devices, num_each)
    given_out = [one.id for devices in sets for one in devices]
    assert len(sets) == len(devices) // num_each
    assert {len(devices) for devices in sets} <= {num_each}
    assert len(given_out) == len(set(given_out))
