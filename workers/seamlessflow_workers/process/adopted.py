"""A child that another process forked for us, for which we wait like for our own, without threads or polling.

It takes the id of a process that became our child because it was orphaned while we were a subreaper. It returns the
exit code, negative for a signal, as `subprocess` does. It needs pidfd_open (Linux 5.3).
"""

import asyncio
import os
from collections.abc import Iterator
from contextlib import contextmanager

from seamlessflow_workers.process.launch import subreaper_set


def is_adoption_possible() -> bool:
    """Whether this kernel reports the end of another process through a descriptor."""
    try:
        os.close(os.pidfd_open(os.getpid()))
    except (AttributeError, OSError):
        return False
    return True


@contextmanager
def adopting() -> Iterator[None]:
    """Adopt orphans inside the block only, so that we need not wait for what our children leave behind."""
    subreaper_set(is_subreaper=True)
    try:
        yield
    finally:
        subreaper_set(is_subreaper=False)


class AdoptedProcess:
    """A process that is reaped as soon as it ends, whether anyone waits or not."""

    def __init__(self, pid: int) -> None:
        """Adopt a process. Raises ChildProcessError if it is not our child."""
        self.pid = pid
        os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT)
        self._loop = asyncio.get_running_loop()
        self._ended: asyncio.Future[int] = self._loop.create_future()
        self._descriptor = os.pidfd_open(pid)
        self._loop.add_reader(self._descriptor, self._reap)

    async def wait(self) -> int:
        return await asyncio.shield(self._ended)

    def _reap(self) -> None:
        self._loop.remove_reader(self._descriptor)
        os.close(self._descriptor)
        _, status = os.waitpid(self.pid, 0)
        self._ended.set_result(os.waitstatus_to_exitcode(status))
