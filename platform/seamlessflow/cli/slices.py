"""Slices of a host: several machines on it, each with devices of its own.

`slices_parse` takes texts such as `rollout=0-5` and returns machines to run; `run_together` runs their supervisors
until one of them ends, or a signal comes, and then ends all. Invariant: no device belongs to two slices.
"""

import contextlib
import os
import re
import signal
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from seamlessflow.cli.errors import CliError
from seamlessflow.core.types.devices import (
    Device,
    InvalidDevices,
    is_core_sets,
    select_core_sets,
    select_gpus,
)
from seamlessflow.core.types.tags import InvalidTag, parse_tags
from seamlessflow_workers.supervisor.inventory import memory_bytes, processor_name, visible_gpus

STOP_TIMEOUT_S = 30.0
_NOT_IN_NAMES = re.compile(r"[^a-z0-9.-]+")
_MAX_NAME = 63


@dataclass(frozen=True, slots=True)
class MachineSlice:
    name: str
    tags: tuple[str, ...]
    devices: tuple[Device, ...]

    @property
    def flags(self) -> tuple[str, ...]:
        """Return the supervisor's flags for its devices, which win over the environment."""
        ids = ",".join(device.id for device in self.devices)
        return ("--devices", ids, "--device", self.devices[0].kind)


def slices_parse(
    texts: Sequence[str], *, prefix: str, environ: Mapping[str, str]
) -> tuple[MachineSlice, ...]:
    """Read `TAG[,TAG]=DEVICES`, one text a slice. Raises CliError with one line for what cannot be."""
    gpus = _gpus(environ) if any(not is_core_sets(text.rpartition("=")[2]) for text in texts) else ()
    slices: list[MachineSlice] = []
    for text in texts:
        names, separator, devices = text.rpartition("=")
        tags = [tag.strip() for tag in names.split(",") if tag.strip()]
        if not separator or not tags:
            raise CliError(f"--slice {text!r} must be tags and devices, such as rollout=0-5", exit_code=2)
        try:
            parse_tags(tags)
            chosen = _select(devices, gpus)
        except (InvalidTag, InvalidDevices) as error:
            raise CliError(f"--slice {text!r}: {error}", exit_code=2) from error
        _refuse_overlap(text, chosen, slices)
        slices.append(MachineSlice(_name(prefix, tags, slices), tuple(tags), chosen))
    return tuple(slices)


def run_together(commands: Sequence[Sequence[str]], *, environ: Mapping[str, str]) -> int:
    """Run the commands until the first one ends, or SIGTERM or Ctrl-C comes; end all, and return the worst exit code.

    Call it from the main thread: the supervisors end with the thread that started them.
    """
    processes: list[subprocess.Popen[bytes]] = []
    terminated: set[int] = set()  # a second signal would kill one that is about to exit

    def end(*_: object) -> None:
        for process in processes:
            if process.poll() is None and process.pid not in terminated:
                terminated.add(process.pid)
                process.terminate()

    before = {number: signal.signal(number, end) for number in (signal.SIGTERM, signal.SIGINT)}
    try:
        processes += [subprocess.Popen(command, env=dict(environ)) for command in commands]
        with contextlib.suppress(ChildProcessError):  # all have ended, and were waited for after a signal
            os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOWAIT)
        end()
        return max(_exit_code(process) for process in processes)
    finally:
        end()
        for number, handler in before.items():
            signal.signal(number, handler)


def host_prefix(host: str) -> str:
    """Return the host's name as the beginning of machines' names."""
    return _NOT_IN_NAMES.sub("-", host.lower()).strip("-.") or "host"


def _exit_code(process: "subprocess.Popen[bytes]") -> int:
    """Return the exit code, as a shell says it. One that does not end in time is killed."""
    try:
        code = process.wait(STOP_TIMEOUT_S)
    except subprocess.TimeoutExpired:
        process.kill()
        code = process.wait()
    return code if code >= 0 else 128 - code


def _gpus(environ: Mapping[str, str]) -> tuple[Device, ...]:
    try:
        return visible_gpus(environ)
    except InvalidDevices as error:
        raise CliError(str(error), exit_code=2) from error


def _select(devices: str, gpus: Sequence[Device]) -> tuple[Device, ...]:
    if not is_core_sets(devices):
        return select_gpus(devices, found=gpus)
    available = os.sched_getaffinity(0)
    return select_core_sets(devices, available=available, name=processor_name(), memory_bytes=memory_bytes())


def _refuse_overlap(text: str, chosen: Sequence[Device], slices: Sequence[MachineSlice]) -> None:
    taken = {unit: one.name for one in slices for device in one.devices for unit in _units(device)}
    for device in chosen:
        for unit in _units(device):
            if unit in taken:
                raise CliError(f"--slice {text!r}: {unit} is already in the slice {taken[unit]}", exit_code=2)


def _units(device: Device) -> list[str]:
    """Return the units that only one slice can have: the GPU itself, or each core of a core set."""
    return [device.id] if device.kind == "cuda" else [f"core {core}" for core in device.cores]


def _name(prefix: str, tags: Sequence[str], slices: Sequence[MachineSlice]) -> str:
    name = _NOT_IN_NAMES.sub("-", f"{prefix}-{'-'.join(tags)}")[:_MAX_NAME].strip("-.")
    taken = {one.name for one in slices}
    numbered = (f"{name[: _MAX_NAME - 3]}-{number}" for number in range(2, len(taken) + 2))
    return name if name not in taken else next(one for one in numbered if one not in taken)
