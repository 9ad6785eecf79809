"""Disks that are full for a while: fault 9, on small file systems in memory, in an installation of
its own.

It needs root to mount them.
"""

import contextlib
import ctypes
import os
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.benchmarks.faults.trial import Fault, Trial

FULL_S = 15.0
CHUNK = b"\0" * (1 << 20)
NEW_MOUNT_NAMESPACE = 0x20000
GOES_ON_WITHIN_S = 180.0


def may_mount() -> bool:
    return os.geteuid() == 0


@contextmanager
def small_disks(sizes: dict[Path, str]) -> Iterator[None]:
    """Mount file systems in memory at these folders, visible only to this process and its
    children."""
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.unshare(NEW_MOUNT_NAMESPACE):
        raise OSError(ctypes.get_errno(), "a mount namespace was refused")
    subprocess.run(["mount", "--make-rprivate", "/"], check=True)
    for folder, size in sizes.items():
        folder.mkdir(parents=True, exist_ok=True)
        owner = folder.stat()
        options = f"size={size},mode={owner.st_mode & 0o7777:o},uid={owner.st_uid},gid={owner.st_gid}"
        subprocess.run(["mount", "-t", "tmpfs", "-o", options, "tmpfs", str(folder)], check=True)
    try:
        yield
    finally:
        for folder in reversed(sizes):
            subprocess.run(["umount", "--lazy", str(folder)], check=True)


@contextmanager
def filled(folder: Path) -> Iterator[None]:
    """Inside the block no byte is free, not even bytes that are freed meanwhile."""
    ballast = folder / "ballast"
    with ballast.open("wb", buffering=0) as file:
        _fill(file.fileno())
        yield
    ballast.unlink()


def _fill(descriptor: int) -> None:
    for size in (len(CHUNK), 4096, 1):
        with contextlib.suppress(OSError):  # no space is left, which is what is wanted
            while os.write(descriptor, CHUNK[:size]):
                pass


def disk_full(trial: Trial, folder: Path, *, is_told: bool) -> None:
    """With `is_told`, the job's events must say why it does not continue."""
    job_id = trial.under_way(trial.spec(num_updates=60))
    with filled(folder):
        time.sleep(FULL_S)
        version = trial.version(job_id)
        if is_told:
            said = [reason for reason in trial.failed_phases(job_id) if "space" in reason.lower()]
            trial.require(
                bool(said), f"nothing says that the disk is full: {trial.failed_phases(job_id)[-1:]}"
            )
            trial.figures.extend(said[:1])
    trial.figures.append(f"version {version} when the disk had room again")
    trial.eventually(
        lambda: trial.version(job_id) > version + 1, within_s=GOES_ON_WITHIN_S, what="the next versions"
    )


def faults_of(*, artifacts: Path, logs: Path, database: Path) -> tuple[Fault, ...]:
    return (
        Fault(
            "9a", "disk of artifacts full for 15 s", lambda trial: disk_full(trial, artifacts, is_told=True)
        ),
        Fault("9b", "disk of logs full for 15 s", lambda trial: disk_full(trial, logs, is_told=False)),
        Fault(
            "9c",
            "disk of the database full for 15 s",
            lambda trial: disk_full(trial, database, is_told=False),
        ),
    )
