"""Makes folders reachable for a user who may not pass through the folders above them, in this process's own view.

Only root can run a Python below /root. In its own mount namespace, the keeper covers the folder that blocks the way
with an empty one, and mounts in it only the folders to be exposed. Nothing changes outside. It needs CAP_SYS_ADMIN;
without it, or if nothing blocks the way, it changes nothing.
"""

import ctypes
import os
import stat
from collections.abc import Sequence
from pathlib import Path

from seamlessflow_workers.agents.keeper.kernel import CAP_SYS_ADMIN, call, has_capability

CLONE_NEWNS = 0x00020000
MS_RDONLY, MS_REMOUNT, MS_BIND, MS_REC, MS_PRIVATE = 1, 32, 4096, 16_384, 1 << 18
MAY_PASS = stat.S_IXOTH


def expose(folders: Sequence[str]) -> None:
    """Make these folders reachable. Raises OSError."""
    hidden = {Path(folder).resolve() for folder in folders}
    barred = {folder: bar for folder in sorted(hidden) if (bar := _bar_above(folder)) is not None}
    if not barred or not has_capability(CAP_SYS_ADMIN):
        return
    call("unshare", CLONE_NEWNS)
    mount(None, Path("/"), flags=MS_REC | MS_PRIVATE)
    # Opened first, so that they can be mounted after the folders above them are covered.
    opened = {folder: os.open(folder, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC) for folder in barred}
    for bar in set(barred.values()):
        mount("tmpfs", bar, kind="tmpfs", data="mode=755,size=64k")
    for folder, descriptor in opened.items():
        folder.mkdir(parents=True, exist_ok=True)
        mount(f"/proc/self/fd/{descriptor}", folder, flags=MS_BIND | MS_REC)
        mount(None, folder, flags=MS_REMOUNT | MS_BIND | MS_RDONLY)
        os.close(descriptor)


def _bar_above(folder: Path) -> Path | None:
    """Return the topmost folder on the way that other users may not pass through."""
    for above in [*reversed(folder.parents), folder]:
        if not above.stat().st_mode & MAY_PASS:
            return above
    return None


def mount(
    source: str | Path | None,
    target: Path,
    *,
    kind: str | None = None,
    flags: int = 0,
    data: str | None = None,
) -> None:
    texts = [None if text is None else os.fsencode(text) for text in (source, target, kind)]
    call("mount", *texts, ctypes.c_ulong(flags), None if data is None else data.encode())
