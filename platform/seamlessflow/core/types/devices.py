"""Devices of a machine: where it computes, and how people name them.

Enters: the devices found on the host, and the text of `--devices`. Leaves: the devices that one machine has.
Invariants: a machine's devices are all of one kind, no core and no GPU belongs to two of them, and their order is their
number.
"""

import re
from collections.abc import Collection, Iterable, Sequence
from typing import Literal

import msgspec

DeviceKind = Literal["cpu", "cuda"]

CPU_PREFIX = "cpu:"
_RANGE = re.compile(r"(\d{1,6})(?:-(\d{1,6}))?")
_ACCEPTED = "accepted: core sets such as cpu:0,cpu:1 or cpu:0-3, or GPUs such as 0,1 or 0-5 or their UUIDs"
_NUM_NUMBERS_MAX = 65_536


class Device(msgspec.Struct, frozen=True, kw_only=True):
    """A GPU, or a set of processor cores that is used like one."""

    id: str  # of a GPU its UUID (its number if the driver has none), of a core set `cpu:0-3`
    kind: DeviceKind
    name: str  # the model
    memory_bytes: int  # of a core set its fraction of the host's memory; 0 if not known
    numa: int | None = None  # the NUMA node that it is attached to; None if not known
    cores: list[int] = []  # those that serve it, sorted; empty if not known


class InvalidDevices(ValueError):
    """A text that names no devices, or some that this host does not have; the message is one line for people."""


def is_core_sets(text: str) -> bool:
    """Whether the text names core sets and not GPUs."""
    return text.strip().startswith(CPU_PREFIX)


def parse_core_sets(text: str) -> tuple[tuple[int, ...], ...]:
    """Read `cpu:0,cpu:1` or `cpu:0-3` (one device) or `cpu:0-3+8-11` (one device). Raises InvalidDevices."""
    sets = []
    for item in _items(text):
        if not item.startswith(CPU_PREFIX):
            raise InvalidDevices(f"devices {text!r}: {item!r} is not a core set like the others; {_ACCEPTED}")
        ranges = item.removeprefix(CPU_PREFIX).split("+")
        sets.append(tuple(sorted({core for one in ranges for core in _numbers(one, text)})))
    if twice := _first_repeated(core for cores in sets for core in cores):
        raise InvalidDevices(
            f"devices {text!r}: core {twice} is named twice; each core belongs to one device"
        )
    return tuple(sets)


def parse_gpus(text: str) -> tuple[str, ...]:
    """Read `0-5` or `0,1` or `GPU-…`; return numbers and UUIDs as text. Raises InvalidDevices."""
    names: list[str] = []
    for item in _items(text):
        if item.startswith(CPU_PREFIX):
            raise InvalidDevices(
                f"devices {text!r}: {item!r} is a core set, but others are GPUs; {_ACCEPTED}"
            )
        names += [item] if item.startswith(("GPU-", "MIG-")) else map(str, _numbers(item, text))
    if twice := _first_repeated(names):
        raise InvalidDevices(f"devices {text!r}: GPU {twice} is named twice")
    return tuple(names)


def core_set_id(cores: Iterable[int]) -> str:
    """Return the name of a core set, with ranges where cores follow one another: `cpu:0-3+8`."""
    runs: list[list[int]] = []
    for core in sorted(cores):
        if runs and core == runs[-1][-1] + 1:
            runs[-1].append(core)
        else:
            runs.append([core])
    return CPU_PREFIX + "+".join(str(run[0]) if len(run) == 1 else f"{run[0]}-{run[-1]}" for run in runs)


def select_core_sets(
    text: str | None, *, available: Collection[int], name: str, memory_bytes: int
) -> tuple[Device, ...]:
    """Return the core sets that `text` names, or one of all cores. Each has its fraction of the memory. Raises
    InvalidDevices."""
    sets = (tuple(sorted(available)),) if text is None else parse_core_sets(text)
    if missing := sorted({core for cores in sets for core in cores} - set(available)):
        raise InvalidDevices(
            f"devices {text!r}: there is no core {missing[0]}; available: {core_set_id(available)}"
        )
    return tuple(
        Device(
            id=core_set_id(cores),
            kind="cpu",
            name=name,
            memory_bytes=memory_bytes * len(cores) // len(available),
            cores=list(cores),
        )
        for cores in sets
    )


def select_gpus(text: str | None, *, found: Sequence[Device], source: str = "devices") -> tuple[Device, ...]:
    """Return the GPUs that `text` names by number or UUID (or the first letters of one), or all that were found. The
    numbers are indices in `found`. Raises InvalidDevices, naming `source`."""
    if text is None:
        return tuple(found)
    chosen = tuple(_find_gpu(name, found, f"{source} {text!r}") for name in parse_gpus(text))
    if twice := _first_repeated(gpu.id for gpu in chosen):
        raise InvalidDevices(f"{source} {text!r}: GPU {twice} is named twice")
    return chosen


def _find_gpu(name: str, found: Sequence[Device], where: str) -> Device:
    if name.isdigit():
        matching = [found[int(name)]] if int(name) < len(found) else []
    else:
        matching = [gpu for gpu in found if gpu.id.startswith(name)]
    if len(matching) == 1:
        return matching[0]
    problem = f"{name} stands for several GPUs" if matching else f"there is no GPU {name}"
    known = ", ".join(f"{number} ({gpu.id})" for number, gpu in enumerate(found)) or "none"
    raise InvalidDevices(f"{where}: {problem}; found: {known}")


def _items(text: str) -> list[str]:
    items = [item.strip() for item in text.split(",")]
    if not all(items):
        raise InvalidDevices(f"devices {text!r} has an empty name; {_ACCEPTED}")
    return items


def _numbers(item: str, text: str) -> range:
    match = _RANGE.fullmatch(item)
    first, last = (int(match[1]), int(match[2] or match[1])) if match else (1, 0)
    if first > last or last >= _NUM_NUMBERS_MAX:
        raise InvalidDevices(f"devices {text!r}: {item!r} is no number or range; {_ACCEPTED}")
    return range(first, last + 1)


def _first_repeated(names: Iterable[object]) -> str:
    seen: set[object] = set()
    for name in names:
        if name in seen:
            return str(name)
        seen.add(name)
    return ""
