"""The answer of `/livez`: whether this process's loop runs and its tasks are alive. It asks nothing outside the
process."""

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from http import HTTPStatus
from typing import TYPE_CHECKING

from seamlessflow.runtime.watchdog import Watchdog

if TYPE_CHECKING:
    import asyncio

PATH = "/livez"
MAX_LAG_S = 10.0  # a loop that was just stuck for this long is unhealthy, even if it answers


def _no_tasks() -> "Sequence[asyncio.Task[None]]":
    return ()


@dataclass(frozen=True, slots=True)
class Liveness:
    watchdog: Watchdog
    tasks: "Callable[[], Sequence[asyncio.Task[None]]]" = _no_tasks

    def answer(self) -> tuple[HTTPStatus, bytes]:
        """Return the status and the JSON body."""
        lag_s = self.watchdog.lag_s
        dead = [task.get_name() for task in self.tasks() if task.done()]
        is_well = not dead and lag_s < MAX_LAG_S
        body = {"status": "ok" if is_well else "failing", "loop_lag_s": round(lag_s, 3), "dead_tasks": dead}
        return (HTTPStatus.OK if is_well else HTTPStatus.SERVICE_UNAVAILABLE), json.dumps(body).encode()
