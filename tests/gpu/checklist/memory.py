"""How much memory is in use: on the cards, as NVML tells it, and by the processes of an item.

Standard library only, but for NVML's package, which is asked if it is there. Nothing here initialises CUDA.
"""

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

_FIELDS = ("RssAnon:", "RssShmem:")
_KIB = 1024


def cards_open() -> Callable[[], list[int]] | None:
    """Return a function that returns the bytes in use on each card; None if there is no card to ask."""
    try:
        import pynvml
    except ImportError:
        return None
    nvml: Any = pynvml
    try:
        nvml.nvmlInit()
        handles = [nvml.nvmlDeviceGetHandleByIndex(number) for number in range(nvml.nvmlDeviceGetCount())]
    except nvml.NVMLError:
        return None
    return lambda: [int(nvml.nvmlDeviceGetMemoryInfo(handle).used) for handle in handles]


def host_bytes(pids: Iterable[int]) -> int:
    """Return the anonymous and shared bytes of processes; a shared page counts for each of them."""
    return sum(_bytes_of(pid) for pid in pids)


def _bytes_of(pid: int) -> int:
    try:
        lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    except OSError:  # it ended meanwhile
        return 0
    return sum(int(line.split()[1]) * _KIB for line in lines if line.startswith(_FIELDS))


class Peaks:
    """The most that was in use, of what was looked at."""

    def __init__(self, used: Callable[[], list[int]] | None) -> None:
        self._used = used
        self._before = used() if used else []
        self.card: int | None = 0 if self._before else None
        self.host = 0

    def look(self, pids: Iterable[int]) -> None:
        self.host = max(self.host, host_bytes(pids))
        if self._used is not None and self.card is not None:
            grown = [now - before for now, before in zip(self._used(), self._before, strict=True)]
            self.card = max(self.card, *grown)
