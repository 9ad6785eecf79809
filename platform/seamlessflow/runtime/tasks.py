"""Tasks and threads that live as long as their process: if one ends by itself, the process ends and is started again.

Without its writer or its listener, a process would look healthy and fail at its purpose. A restart is the one remedy
for all of them: it loses no state, and the log says which task died of what.
"""

import asyncio
import threading
from collections.abc import Callable, Coroutine
from typing import Any

from seamlessflow.runtime.ending import log, process_end


def task_supervised(
    work: Coroutine[Any, Any, None],
    *,
    name: str,
    may_return: bool = False,
    end: Callable[[str], object] = process_end,
) -> "asyncio.Task[None]":
    """Start `work`, which never ends unless it is cancelled; with `may_return` it may also finish without an error."""

    def ended(task: "asyncio.Task[None]") -> None:
        error = None if task.cancelled() else task.exception()
        if error is not None or not (may_return or task.cancelled()):
            log.critical("the task %s died", name, exc_info=error)
            end(f"the task {name} ended ({error!r})")

    task = asyncio.create_task(work, name=name)
    task.add_done_callback(ended)
    return task


def thread_supervised(
    work: Callable[[], None], *, name: str, end: Callable[[str], object] = process_end
) -> threading.Thread:
    """Start `work` in a thread. It may return; an exception that it does not catch ends the process."""

    def run() -> None:
        try:
            work()
        except Exception as error:  # noqa: BLE001 - it ends the process, whatever it is
            log.critical("the thread %s died", name, exc_info=error)
            end(f"the thread {name} ended ({error!r})")

    thread = threading.Thread(target=run, name=name, daemon=True)
    thread.start()
    return thread
