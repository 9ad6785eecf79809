"""Calls of the kernel that Python has no functions for. Each raises OSError with the call's name."""

import ctypes
import os
from pathlib import Path

CAP_SYS_ADMIN = 21
# By machine: the numbers of these system calls, and the name of the architecture in seccomp's data.
NUMBERS = {
    "x86_64": {"arch": 0xC000003E, "clone": 56, "unshare": 272, "keyctl": 250, "clone3": 435},
    "aarch64": {"arch": 0xC00000B7, "clone": 220, "unshare": 97, "keyctl": 219, "clone3": 435},
}.get(os.uname().machine)
_libc = ctypes.CDLL(None, use_errno=True)


def call(name: str, *arguments: object) -> int:
    """Call a function of the C library."""
    result: int = getattr(_libc, name)(*arguments)
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{name}: {os.strerror(number)}")
    return result


def prctl(option: int, *values: int) -> None:
    padded = [*values, 0, 0, 0, 0][:4]
    call("prctl", option, *(ctypes.c_ulong(value) for value in padded))


def keyctl(operation: int, *values: int) -> int:
    """Work on the kernel's keys."""
    if NUMBERS is None:
        raise OSError("keyctl: not known on this machine")
    padded = [*values, 0, 0, 0, 0][:4]
    return call("syscall", NUMBERS["keyctl"], operation, *(ctypes.c_long(value) for value in padded))


def has_capability(number: int) -> bool:
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("CapEff:"):
            return bool(int(line.split()[1], 16) >> number & 1)
    return False
