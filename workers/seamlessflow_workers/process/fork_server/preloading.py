"""Imports modules at the lowest priority and checks that the process can still be forked afterwards.

Invariant: one thread, no child, no descriptor besides the fork server's own, no CUDA; so a fork copies nothing that
cannot work in the copy.
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
    """A module could not be imported; the message says why in one sentence."""


def modules_import(names: Sequence[str]) -> None:
    """Import modules in a thread that has ended on return. Raises NotImported.

    Only that thread gets the low priority: an unprivileged process could never raise its own priority again, which its
    children need.
    """
    failures: list[str] = []
    thread = threading.Thread(target=_import_slowly, args=(names, failures))
    thread.start()
    thread.join()
    if failures:
        raise NotImported(failures[0])
    _until_alone()
    gc.collect()
    gc.freeze()  # so that collections in children neither scan the imported objects nor copy their pages


def _import_slowly(names: Sequence[str], failures: list[str]) -> None:
    os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), LOWEST_PRIORITY)
    for name in names:
        try:
            importlib.import_module(name)
        except Exception as error:  # noqa: BLE001 - any reason prevents forking children, and is reported
            traceback.print_exc()
            failures.append(f"{name} cannot be imported: {error!r}")
            return


def _until_alone() -> None:
    """Wait until no other thread is left, because `join` returns shortly before the kernel's thread is gone."""
    deadline_s = time.monotonic() + THREAD_END_S
    while num_threads() > 1 and time.monotonic() < deadline_s:
        time.sleep(_POLL_S)


def unfit(own_descriptors: Collection[int]) -> str:
    """Return why this process must not be forked; empty if it may be."""
    if (number := num_threads()) > 1:
        return f"the imported modules started threads ({number - 1})"
    if has_children():
        return "the imported modules started a process"
    if foreign := open_descriptors() - set(own_descriptors):
        return f"the imported modules keep descriptors open: {sorted(foreign)}"
    if is_cuda_initialized():
        return "the imported modules initialised CUDA, which no child could use"
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
    return {number for number in numbers if _is_open(number)}  # without the one used for listing


def _is_open(number: int) -> bool:
    try:
        os.fstat(number)
    except OSError:
        return False
    return True


def is_cuda_initialized() -> bool:
    """Whether CUDA is initialised, by asking the driver's library if it is loaded; this initialises nothing."""
    try:
        driver = ctypes.CDLL("libcuda.so.1", mode=os.RTLD_NOLOAD | os.RTLD_LAZY)
    except OSError:
        return False
    context = ctypes.c_void_p()
    return int(driver.cuCtxGetCurrent(ctypes.byref(context))) != _CUDA_NOT_INITIALIZED
