"""Becomes another program after tying its lifetime to the parent's.

`python -I -S` runs it as a script with `PARENT_PID DEATH_SIGNAL IDENTITY PROGRAM ARG...`: it needs only the standard
library, and none of our code runs between fork and exec in a process that has threads. The program keeps the process
id, and the kernel signals it when the thread that spawned it ends. Invariant: no program is left behind, even if the
parent dies before the death signal is set.

Identities: `same`; `userns:UID` (root outside, UID inside its own user namespace, so that we still own the files);
`setuid:UID:GID`.
"""

import ctypes
import os
import signal
import sys
from pathlib import Path

PR_SET_PDEATHSIG = 1
CLONE_NEWUSER = 0x10000000
EXIT_PARENT_GONE = 111
EXIT_NO_IDENTITY = 112


def main(arguments: list[str]) -> None:
    parent_pid, death_signal, identity, *command = arguments
    try:
        assume_identity(identity)
    except OSError as error:
        sys.stderr.write(f"cannot take the identity {identity}: {error}\n")
        sys.exit(EXIT_NO_IDENTITY)
    # Set after the identity, because the kernel clears the death signal whenever credentials change.
    checked(libc().prctl(PR_SET_PDEATHSIG, int(death_signal)))
    if os.getppid() != int(parent_pid):
        sys.exit(EXIT_PARENT_GONE)
    # Python ignores these two, and an ignored signal stays ignored through exec.
    for ignored in (signal.SIGPIPE, signal.SIGXFSZ):
        signal.signal(ignored, signal.SIG_DFL)
    os.execvp(command[0], command)  # noqa: S606 - becoming the program is this module's purpose


def assume_identity(identity: str) -> None:
    kind, *numbers = identity.split(":")
    if kind == "userns":
        enter_user_namespace(uid=int(numbers[0]))
    elif kind == "setuid":
        uid, gid = map(int, numbers)
        os.setgroups([])
        os.setgid(gid)
        os.setuid(uid)
    elif kind != "same":
        raise ValueError(f"identity {identity!r} is not one of same, userns:UID, setuid:UID:GID")


def enter_user_namespace(*, uid: int) -> None:
    outer_uid, outer_gid = os.geteuid(), os.getegid()
    checked(libc().unshare(CLONE_NEWUSER))
    Path("/proc/self/setgroups").write_text("deny")
    Path("/proc/self/uid_map").write_text(f"{uid} {outer_uid} 1")
    Path("/proc/self/gid_map").write_text(f"{uid} {outer_gid} 1")


def libc() -> ctypes.CDLL:
    return ctypes.CDLL(None, use_errno=True)


def checked(result: int) -> None:
    if result != 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))


if __name__ == "__main__":
    main(sys.argv[1:])
