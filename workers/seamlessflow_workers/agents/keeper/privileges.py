"""Takes from an agent program every way to more rights: a program that it starts can have no right that it lacks
itself.

`bounds_drop` empties the set of capabilities that any program could give, `renounce` makes setuid programs and file
capabilities ordinary, and refuses new user namespaces, in which a program would be root. Both last through exec. A
kernel without seccomp refuses no namespaces; the rest is true.
"""

import contextlib
import ctypes
import errno
import struct
from pathlib import Path

from seamlessflow_workers.agents.keeper.kernel import NUMBERS, prctl

PR_SET_SECCOMP, PR_CAPBSET_DROP, PR_SET_NO_NEW_PRIVS = 22, 24, 38
SECCOMP_MODE_FILTER = 2
CLONE_NEWUSER = 0x10000000
# Instructions of the kernel's packet filters, and where the data of a system call has its fields.
LOAD, JUMP_EQUAL, JUMP_ABOVE, JUMP_ANY_BIT, RETURN = 0x20, 0x15, 0x35, 0x45, 0x06
NUMBER, ARCH, FIRST_ARGUMENT = 0, 4, 16
ALLOW, REFUSE = 0x7FFF0000, 0x00050000
X32 = 0x40000000  # numbers of another calling convention of x86_64


class _Program(ctypes.Structure):
    _fields_ = (("length", ctypes.c_ushort), ("instructions", ctypes.c_char_p))


def bounds_drop() -> None:
    """Empty the bounding set, if this process may."""
    last = int(Path("/proc/sys/kernel/cap_last_cap").read_text())
    with contextlib.suppress(PermissionError):
        for capability in range(last + 1):
            prctl(PR_CAPBSET_DROP, capability)


def renounce() -> None:
    prctl(PR_SET_NO_NEW_PRIVS, 1)
    if NUMBERS is None:
        return
    code = _no_user_namespaces(NUMBERS)
    program = _Program(len(code) // 8, code)
    with contextlib.suppress(OSError):
        prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, ctypes.addressof(program))


def _no_user_namespaces(numbers: dict[str, int]) -> bytes:
    """Return the filter: `unshare` and `clone` may not make one; `clone3`, whose flags it cannot read, is unknown.

    Jumps name how many instructions they skip, if the test is true and if not.
    """
    return b"".join(
        struct.pack("=HBBI", *instruction)
        for instruction in (
            (LOAD, 0, 0, ARCH),
            (JUMP_EQUAL, 0, 8, numbers["arch"]),
            (LOAD, 0, 0, NUMBER),
            (JUMP_ABOVE, 6, 0, X32),
            (JUMP_EQUAL, 5, 0, numbers["clone3"]),
            (JUMP_EQUAL, 1, 0, numbers["unshare"]),
            (JUMP_EQUAL, 0, 4, numbers["clone"]),
            (LOAD, 0, 0, FIRST_ARGUMENT),
            (JUMP_ANY_BIT, 0, 2, CLONE_NEWUSER),
            (RETURN, 0, 0, REFUSE | errno.EPERM),
            (RETURN, 0, 0, REFUSE | errno.ENOSYS),
            (RETURN, 0, 0, ALLOW),
        )
    )
