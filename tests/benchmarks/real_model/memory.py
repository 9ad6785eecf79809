"""Watches the memory of an installation's processes, and keeps the largest sums.

A thread reads the proportional set sizes (a page that n processes have counts as one n-th in each). So weights that
several processes map from one file count once.
"""

import threading
from collections import Counter
from collections.abc import Collection, Mapping
from concurrent.futures import ThreadPoolExecutor
from types import TracebackType
from typing import Self

import psutil

from tests.acceptance.platform_process import PlatformProcess
from tests.benchmarks.cost import kind_of

PERIOD_S = 1.0


class MemoryWatch:
    """A context in which an installation is watched."""

    def __init__(self, platform: PlatformProcess) -> None:
        self._platform = platform
        self._readings: list[Mapping[str, int]] = []
        self._is_over = threading.Event()
        self._threads = ThreadPoolExecutor(max_workers=1, thread_name_prefix="memory")

    def __enter__(self) -> Self:
        self._watching = self._threads.submit(self._watch)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._is_over.set()
        with self._threads:
            self._watching.result()  # or what ended it early, as then the peaks are not known

    def peak_bytes(self, kinds: Collection[str] | None = None) -> int:
        """Return the largest sum that was seen at one moment: of processes of these kinds, or of all."""
        return max(sum_of(reading, kinds) for reading in self._readings)

    def _watch(self) -> None:
        while True:
            self._readings.append(_read(self._platform))
            if self._is_over.wait(PERIOD_S):
                return


def sum_of(reading: Mapping[str, int], kinds: Collection[str] | None) -> int:
    return sum(size for kind, size in reading.items() if kinds is None or kind in kinds)


def _read(platform: PlatformProcess) -> Mapping[str, int]:
    sizes: Counter[str] = Counter()
    for process in platform.family():
        try:
            sizes[kind_of(process.cmdline())] += process.memory_full_info().pss
        except psutil.NoSuchProcess:
            continue  # it ended meanwhile
    return sizes
