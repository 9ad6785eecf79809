"""Watches the machine's devices and cordons those that fail, so that one dead GPU does not take its machine along.

It takes the reports of the host about its devices, the ends of children, and releases by people. It returns which
devices may be used and why the others may not. States of a device: usable ⇄ cordoned. A person's release, or the next
boot, makes it usable again if the host finds it well. Invariant: a cordoned device is given to no child that is started
later.
"""

import asyncio
import logging
from collections.abc import Callable, Mapping, Sequence

from seamlessflow.core.liveness.device_errors import failed_device
from seamlessflow.core.types.devices import Device
from seamlessflow_workers.supervisor.nvml import DeviceHealth

PROBE_EVERY_S = 10.0
CHILD_REASON_CHARACTERS = 300

Probe = Callable[[Sequence[Device]], Mapping[str, DeviceHealth]]  # by id; it may block for a while
log = logging.getLogger(__name__)


class DeviceWatch:
    def __init__(self, devices: Sequence[Device], *, probe: Probe, on_changed: Callable[[], None]) -> None:
        """Devices that the host finds ill already are cordoned from the start."""
        self._devices = tuple(devices)
        self._probe = probe
        self._on_changed = on_changed
        self.problems: dict[str, str] = {}  # why a device is cordoned, by its id
        # Problems that the last probe found on devices which are still usable.
        self._suspected: dict[str, str] = {}
        self._num_uncorrected: dict[str, int] = {}  # errors that are known already
        self._released: dict[str, str] = {}
        first = probe(self._devices)
        self._accept_errors(first)
        self.problems.update({id: health.problem for id, health in first.items() if health.problem})

    @property
    def usable(self) -> tuple[Device, ...]:
        return tuple(device for device in self._devices if self.are_usable([device]))

    def are_usable(self, devices: Sequence[Device]) -> bool:
        """Return whether none of these devices is cordoned."""
        return all(device.id not in self.problems for device in devices)

    async def run(self) -> None:
        """Probe for ever."""
        while True:
            await asyncio.sleep(PROBE_EVERY_S)
            self.take(await asyncio.to_thread(self._probe, self._devices))

    def take(self, found: Mapping[str, DeviceHealth]) -> None:
        """Take a probe. A device is cordoned if two in a row find it ill, because a driver may be busy for a moment;
        new errors that its memory could not correct are counted, so one probe suffices."""
        before = dict(self.problems)
        for id, health in found.items():
            if id in self.problems:
                continue
            num_new = health.num_uncorrected - self._num_uncorrected.get(id, 0)
            if num_new > 0:
                self.problems[id] = f"its memory had {num_new} errors that it could not correct"
            elif health.problem and id in self._suspected:
                self.problems[id] = health.problem
        self._suspected = {id: health.problem for id, health in found.items() if health.problem}
        self._release(found)
        self._report(before)

    def blame(self, reason: str, devices: Sequence[Device]) -> None:
        """Take how a child ended that computed on these devices, and cordon one if it was the device's own error."""
        device = failed_device(reason, devices)
        if device is not None and device.id not in self.problems:
            before = dict(self.problems)
            # No column can store a NUL.
            last_words = reason[-CHILD_REASON_CHARACTERS:].replace("\0", "\ufffd")
            self.problems[device.id] = f"a process failed on it: {last_words}"
            self._report(before)

    def release(self, released: Mapping[str, str]) -> None:
        """Take which problems of which devices a person forgave. The next probe decides whether the device is well."""
        self._released = dict(released)

    def _release(self, found: Mapping[str, DeviceHealth]) -> None:
        for id, problem in self._released.items():
            health = found.get(id, DeviceHealth())
            if self.problems.get(id) == problem and not health.problem:
                del self.problems[id]
                self._accept_errors({id: health})

    def _accept_errors(self, found: Mapping[str, DeviceHealth]) -> None:
        self._num_uncorrected.update({id: health.num_uncorrected for id, health in found.items()})

    def _report(self, before: Mapping[str, str]) -> None:
        for id, problem in self.problems.items():
            if id not in before:
                log.error("device %s is cordoned: %s", id, problem)
        for id in before.keys() - self.problems.keys():
            log.info("device %s is used again", id)
        if before != self.problems:
            self._on_changed()
