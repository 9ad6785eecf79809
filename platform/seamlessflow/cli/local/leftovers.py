"""Stops servers of an earlier launcher that are still running.

Takes a process id noted in a data folder and ends that server. Process ids are reused, so a process counts as ours only
if it runs the expected program in the expected folder.
"""

import contextlib
import os
import signal
import time
from pathlib import Path

from seamlessflow.cli.local.failure import InstallationFailed

POLL_S = 0.02
PATIENCE_S = 20.0


class LeftoverWontEnd(InstallationFailed):
    """A server of an earlier launcher outlived its signals."""


def end_leftover(pid: int | None, *, program: str, cwd: Path, stop_signal: signal.Signals) -> None:
    """Stop the server `pid` if it is `program` working in `cwd`, and wait until it is gone."""
    if pid is None or not _is_ours(pid, program=program, cwd=cwd):
        return
    for number in (stop_signal, signal.SIGKILL):
        # It may have ended already, which is what we want.
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, number)
        deadline_at = time.monotonic() + PATIENCE_S
        while time.monotonic() < deadline_at:
            if not _is_ours(pid, program=program, cwd=cwd):
                return
            time.sleep(POLL_S)
    raise LeftoverWontEnd(f"{program} (process {pid}) is still running in {cwd}; stop it, then start again.")


def _is_ours(pid: int, *, program: str, cwd: Path) -> bool:
    process = Path("/proc") / str(pid)
    try:
        name = (process / "comm").read_text().strip()
        # A zombie no longer has a folder: reading its link fails, and it has no resources.
        return name == program and (process / "cwd").resolve(strict=True) == cwd.resolve()
    except OSError:
        return False
