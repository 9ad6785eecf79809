"""Gives a session folders of its own where every user may write, and memory of its own for messages between processes.

The keeper makes them in its own mount and IPC namespaces, so they are gone when the session's last process is. What the
session was given there stays where it is: its own folder, and read-only what its command and its environment name. The
folders above keep their modes, so nothing becomes reachable that was not. It needs CAP_SYS_ADMIN.
"""

import os
import stat
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from seamlessflow_workers.agents.keeper.kernel import CAP_SYS_ADMIN, call, has_capability
from seamlessflow_workers.agents.keeper.mounts import (
    CLONE_NEWNS,
    MS_BIND,
    MS_PRIVATE,
    MS_RDONLY,
    MS_REC,
    MS_REMOUNT,
    mount,
)

COMMON = ("/tmp", "/var/tmp", "/dev/shm", "/run/lock", "/dev/mqueue")  # noqa: S108 - these become private
CLONE_NEWIPC = 0x08000000
MS_NOSUID, MS_NODEV = 2, 4
MAX_FILES = 1 << 18  # in each of them; they are memory too


class _Kept(NamedTuple):
    path: Path
    descriptor: int
    above: Sequence[tuple[Path, os.stat_result]]  # the folders between it and the private one
    is_writable: bool


def common_folders() -> list[Path]:
    """Return the folders of this host in which every user may write."""
    found = dict.fromkeys(Path(name).resolve() for name in COMMON)
    return [folder for folder in found if folder.is_dir() and folder.stat().st_mode & stat.S_IWOTH]


def make_private(own: str, kept: Sequence[str], *, size_mb: int) -> bool:
    """Cover the common folders for this process and all that it starts. Returns False if it may not."""
    if not has_capability(CAP_SYS_ADMIN):
        return False
    try:
        call("unshare", CLONE_NEWNS | CLONE_NEWIPC)
    except PermissionError:
        return False
    mount(None, Path("/"), flags=MS_REC | MS_PRIVATE)
    folders = common_folders()
    names = dict.fromkeys([*kept, own])
    found = [
        _open(Path(name).resolve(), folder, is_writable=name == own)
        for name in names
        for folder in folders
        if Path(name).exists() and folder in Path(name).resolve().parents
    ]
    for folder in folders:
        _cover(folder, size_mb)
    for each in sorted(found, key=lambda each: len(each.path.parts)):
        _put_back(each)
    os.chdir(own)
    return True


def _open(path: Path, folder: Path, *, is_writable: bool) -> _Kept:
    above = [(each, each.stat()) for each in reversed(path.parents) if folder in each.parents]
    return _Kept(path, os.open(path, os.O_PATH | os.O_CLOEXEC), above, is_writable)


def _cover(folder: Path, size_mb: int) -> None:
    flags = MS_NOSUID | MS_NODEV
    if folder.name == "mqueue":
        mount("mqueue", folder, kind="mqueue", flags=flags)
        folder.chmod(0o1777)
        return
    mount("tmpfs", folder, kind="tmpfs", flags=flags, data=f"mode=1777,size={size_mb}m,nr_inodes={MAX_FILES}")


def _put_back(kept: _Kept) -> None:
    for folder, status in kept.above:
        if not folder.exists():
            folder.mkdir()
            os.chown(folder, status.st_uid, status.st_gid)
            folder.chmod(stat.S_IMODE(status.st_mode))
    if not kept.path.exists():
        is_folder = stat.S_ISDIR(os.fstat(kept.descriptor).st_mode)
        kept.path.mkdir() if is_folder else kept.path.touch()
    mount(f"/proc/self/fd/{kept.descriptor}", kept.path, flags=MS_BIND | MS_REC)
    if not kept.is_writable:
        mount(None, kept.path, flags=MS_REMOUNT | MS_BIND | MS_RDONLY)
    os.close(kept.descriptor)
