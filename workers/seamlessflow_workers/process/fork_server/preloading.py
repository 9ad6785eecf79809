"""Imports modules at the lowest priority and proves that the process may still be forked afterwards.

Invariant: one thread, no child, no descriptor beyond the fork server's own, no CUDA: a fork copies nothing that only
a part of the process could go on with.
"""

import ctypes
import gc
import importlib
import os
import threading
import time
import traceback
from collections.abc import Collection, Sequence
from pathlib import Path

LOWEST_PRIORITY = 19
THREAD_END_S = 5.0
_POLL_S = 0.001
_CUDA_NOT_INITIALIZED = 3


class NotImported(Exception):
    """One sentence about the module that could not be imported."""


def modules_import(names: Sequence[str]) -> None:
    """Raises NotImported. In a thread of its own, which is over on return: only a thread that ends can be slowed down,
    for a process without privileges never gets its priority back, and the children need theirs."""
    failures: list[str] = []
    thread = threading.Thread(target=_import_slowly, args=(names, failures))
    thread.start()
    thread.join()
    if failures:
        raise NotImported(failures[0])
    _until_alone()
    gc.collect()
    gc.freeze()  # children neither look through what is imported nor copy its pages for the counts of a collection


def _import_slowly(names: Sequence[str], failures: list[str]) -> None:
    os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), LOWEST_PRIORITY)
    for name in names:
        try:
            importlib.import_module(name)
        except Exception as error:  # noqa: BLE001 - any reason keeps children from being forked, and is told
            traceback.print_exc()
            failures.append(f"{name} cannot be imported: {error!r}")
            return


def _until_alone() -> None:
    """Wait until no other thread is left: `join` returns moments before the kernel's thread is gone."""
    deadline_s = time.monotonic() + THREAD_END_S
    while num_threads() > 1 and time.monotonic() < deadline_s:
        time.sleep(_POLL_S)


def unfit(own_descriptors: Collection[int]) -> str:
    """Return why this process must not be forked; empty when it may be."""
    if (number := num_threads()) > 1:
        return f"what was imported has started threads ({number - 1})"
    if has_children():
        return "what was imported has started a process"
    if foreign := open_descriptors() - set(own_descriptors):
        return f"what was imported keeps descriptors open: {sorted(foreign)}"
    if is_cuda_initialized():
        return "what was imported has initialised CUDA, which no child could use"
    return ""


def num_threads() -> int:
    return len(list(Path("/proc/self/task").iterdir()))


def has_children() -> bool:
    try:
        os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
    except ChildProcessError:
        return False
    return True


def open_descriptors() -> set[int]:
    with os.scandir("/proc/self/fd") as entries:
        numbers = {int(entry.name) for entry in entries}
    return {number for number in numbers if _is_open(number)}  # without the one that listed them


def _is_open(number: int) -> bool:
    try:
        os.fstat(number)
    except OSError:
        return False
    return True


def is_cuda_initialized() -> bool:
    """Ask the driver's library, if it is loaded at all; this initialises nothing."""
    try:
        driver = ctypes.CDLL("libcuda.so.1", mode=os.RTLD_NOLOAD | os.RTLD_LAZY)
    except OSError:
        return False
    context = ctypes.c_void_p()
    return int(driver.cuCtxGetCurrent(ctypes.byref(context))) != _CUDA_NOT_INITIALIZED
