"""A thread that ends this process when its main loop stands still for longer than a limit.

Takes beats from an event loop (`watch_loop`) or from a loop of one's own (`beat`); measures the lag of the loop and, if
it grows too long, ends the process. Invariant: only time in which the watchdog itself ran counts, so neither SIGSTOP
nor a suspended machine, nor one so busy that no thread gets a turn, is taken for a stuck loop.

A loop that is stuck inside one call that never lets another thread run (a regular expression, a huge power) stops the
watchdog as well. So each beat sets a timer of processor time: when it runs out, the kernel ends the process.
"""

import asyncio
import faulthandler
import signal
import sys
import threading
import time
from collections.abc import Callable

from seamlessflow.runtime.ending import process_end

DEFAULT_LIMIT_S = 30
LIMIT_VARIABLE = "SEAMLESSFLOW_WATCHDOG_S"
TICK_S = 0.5
CPU_FACTOR = 2  # threads beside the loop use processor time as well


class Watchdog:
    """Watches a loop. States: watching ⇄ paused → stopped. With `limit_s` 0 it only measures."""

    def __init__(self, what: str, *, limit_s: float, end: Callable[[str], object] = process_end) -> None:
        self._what = what
        self._limit_s = limit_s
        self._end = end
        self._is_beating = True
        self._is_paused = False
        self._lag_s = 0.0
        self._loop: asyncio.AbstractEventLoop | None = None
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, name="watchdog", daemon=True)

    @property
    def lag_s(self) -> float:
        """Time since the loop's last beat. A healthy loop gives one each tick."""
        return max(0.0, self._lag_s - TICK_S)

    def beat(self) -> None:
        """Note that the loop runs. Call this from the main thread at least once a second."""
        self._is_beating = True

    def start(self) -> "Watchdog":
        """Start watching. Call this from the main thread: it installs the handler that shows where a call is stuck."""
        if self._limit_s and sys.__stderr__ is not None:
            faulthandler.register(signal.SIGPROF, file=sys.__stderr__, all_threads=True, chain=True)
        self._set_timer()
        self._thread.start()
        return self

    def watch_loop(self, loop: asyncio.AbstractEventLoop) -> "Watchdog":
        self._loop = loop
        return self.start()

    def pause(self) -> None:
        self._is_paused = True

    def resume(self) -> None:
        self._is_beating, self._is_paused = True, False

    def stop(self) -> None:
        self._stopped.set()
        signal.setitimer(signal.ITIMER_PROF, 0)

    def _run(self) -> None:
        looked_s = time.monotonic()
        while not self._stopped.wait(TICK_S):
            now_s = time.monotonic()
            self._look(min(now_s - looked_s, 2 * TICK_S))
            looked_s = now_s

    def _look(self, passed_s: float) -> None:
        if self._is_beating or self._is_paused:
            self._is_beating, self._lag_s = False, 0.0
            self._set_timer()
            if self._loop is not None and not self._loop.is_closed():
                self._loop.call_soon_threadsafe(self.beat)
            return
        self._lag_s += passed_s
        if self._limit_s and self._lag_s > self._limit_s:
            self._end(f"{self._what} has stood still for {self._lag_s:.0f} s")
            self._stopped.set()

    def _set_timer(self) -> None:
        signal.setitimer(signal.ITIMER_PROF, 0 if self._is_paused else self._limit_s * CPU_FACTOR)
