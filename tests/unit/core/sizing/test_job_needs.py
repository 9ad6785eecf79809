"""A job is not given machines whose devices are too small for it, and says so."""

from dataclasses import replace

import pytest

from seamlessflow.core.lifecycle.jobs import JobState
from seamlessflow.core.scheduling.decisions import Lease
from seamlessflow.core.scheduling.scheduler import decide
from seamlessflow.core.scheduling.snapshot import Snapshot
from seamlessflow.core.sizing.job_needs import DeviceMemory, JobNeeds, device_memory
from seamlessflow.core.sizing.memory_needs import Certainty, MemoryUse, Need
from seamlessflow.core.types.devices import Device
from seamlessflow.core.types.tags import Role
from tests.unit.core.scheduling.test_scheduling_fleet import BOTH, EXTERNAL, machine

GIB = 2**30
ENGINE = Need(
    (
        MemoryUse("weights", 60 * GIB, is_sharded=True),
        MemoryUse("cache", 30 * GIB, is_sharded=True, certainty=Certainty.ON_GPU),
    )
)
TRAINER = Need(
    (
        MemoryUse("weights", 60 * GIB, is_sharded=False),
        MemoryUse("optimizer states", 360 * GIB, is_sharded=True),
    )
)
NEEDS = JobNeeds(engine=ENGINE, trainer=TRAINER, num_machines=1, num_ranks=None)


def memory(gib: int, *, num_devices: int = 1) -> DeviceMemory:
    return DeviceMemory("cuda", num_devices, gib * GIB)


def test_a_machine_is_said_to_be_too_small_with_what_is_needed_and_for_what() -> None:
    assert NEEDS.problem(Role.ROLLOUT, memory(90)) is None
    assert NEEDS.problem(Role.ROLLOUT, memory(80)) == (
        "has 80.0 GiB of memory, but an engine needs at least 90.0 GiB: 60.0 GiB of weights, 30.0 GiB of cache"
    )
    assert NEEDS.problem(Role.AGENT, memory(1)) is None


def test_a_processor_commits_a_cache_only_when_it_is_used() -> None:
    assert NEEDS.problem(Role.ROLLOUT, DeviceMemory("cpu", 1, 60 * GIB)) is None


def test_trainers_share_states_over_the_devices_of_their_machines() -> None:
    assert NEEDS.problem(Role.TRAIN, memory(105, num_devices=8)) is None
    problem = NEEDS.problem(Role.TRAIN, memory(104, num_devices=8))
    assert problem is not None
    assert problem.startswith(
        "has 104.0 GiB of memory on each of its 8 devices, but a trainer needs at least 105.0 GiB"
    )
    assert replace(NEEDS, num_machines=3).problem(Role.TRAIN, memory(75, num_devices=8)) is None
    assert replace(NEEDS, num_ranks=1).problem(Role.TRAIN, memory(105, num_devices=8)) is not None


def test_work_takes_what_is_certain_and_trainers_also_have_activations() -> None:
    activations = MemoryUse("activations", 9 * GIB, is_sharded=False, certainty=Certainty.USUAL)
    needs = replace(NEEDS, trainer=Need((*TRAINER.uses, activations)))
    assert needs.bytes_at_work(Role.TRAIN, memory(80, num_devices=8)) == (105 * GIB, 114 * GIB)
    assert needs.bytes_at_work(Role.TRAIN, DeviceMemory("cpu", 8, GIB)) == (105 * GIB, 105 * GIB)
    assert needs.bytes_at_work(Role.ROLLOUT, memory(80)) == (90 * GIB, 90 * GIB)
    assert needs.bytes_at_work(Role.ROLLOUT, DeviceMemory("cpu", 1, GIB)) == (60 * GIB, 60 * GIB)
    assert needs.bytes_at_work(Role.AGENT, memory(80)) == (0, 0)
    assert replace(needs, engine=None).bytes_at_work(Role.ROLLOUT, memory(80)) == (0, 0)


@pytest.mark.parametrize("sizes, num_bytes", [((80 * GIB + 5, 81 * GIB), 80 * GIB), ((3, 4), 3)])
def test_the_smallest_device_of_a_machine_counts(sizes: tuple[int, ...], num_bytes: int) -> None:
    devices = [Device(id=str(n), kind="cuda", name="card", memory_bytes=size) for n, size in enumerate(sizes)]
    assert device_memory(devices) == DeviceMemory("cuda", 2, num_bytes)


def test_a_machine_that_does_not_tell_its_memory_is_not_judged() -> None:
    assert device_memory([]) is None
    assert device_memory([Device(id="0", kind="cuda", name="card", memory_bytes=0)]) is None


def test_a_job_gets_the_machine_that_is_large_enough_and_waits_where_none_is() -> None:
    job = replace(EXTERNAL, state=JobState.QUEUED, needs=replace(NEEDS, trainer=ENGINE))
    small, large = (
        replace(machine(name, *BOTH), memory=memory(gib)) for name, gib in (("small", 24), ("large", 96))
    )
    plan = decide(Snapshot(machines=(small, large), jobs=(job,)))
    assert {one.machine for one in plan.decisions if isinstance(one, Lease)} == {"large"}
    plan = decide(Snapshot(machines=(small,), jobs=(job,)))
    assert not [one for one in plan.decisions if isinstance(one, Lease)]
    assert (
        "small has 24.0 GiB of memory, but an engine needs at least 90.0 GiB" in plan.waiting_reasons[job.id]
    )


def test_an_engine_that_is_spread_over_devices_needs_its_part_of_the_memory_of_each() -> None:
    spread = replace(NEEDS, num_engine_devices=4)
    whole, part = ENGINE.least_bytes(1, "cuda"), ENGINE.least_bytes(4, "cuda")
    small = DeviceMemory(kind="cuda", num_bytes=part, num_devices=4)
    assert part < whole
    assert NEEDS.problem(Role.ROLLOUT, small) is not None
    assert spread.problem(Role.ROLLOUT, small) is None
    assert spread.problem(Role.ROLLOUT, replace(small, num_bytes=part - 1)) is not None
    assert spread.key != NEEDS.key
