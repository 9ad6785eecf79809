"""A watchdog for background workers: it watches Celery's loop while the broker is there.

While the broker is away, Celery waits for it inside one call, and this does not count as a loop that hangs.
"""

from typing import Any

from celery import bootsteps
from django.conf import settings

from seamlessflow.runtime.watchdog import Watchdog

BEAT_S = 1.0


class WatchedConsumer(bootsteps.StartStopStep):
    """Watches the consumer's loop: a step of its blueprint that starts with each connection and stops with it."""

    requires = ("celery.worker.consumer.tasks:Tasks",)

    def __init__(self, consumer: Any, **options: Any) -> None:
        super().__init__(consumer, **options)
        self._watchdog: Watchdog | None = None
        self._beats: Any = None

    def start(self, consumer: Any) -> None:
        if self._watchdog is None:
            self._watchdog = Watchdog("the background worker's loop", limit_s=settings.WATCHDOG_S).start()
        self._watchdog.resume()
        self._beats = consumer.timer.call_repeatedly(BEAT_S, self._watchdog.beat)

    def stop(self, consumer: Any) -> None:
        if self._watchdog is not None:
            self._watchdog.pause()
        if self._beats is not None:
            self._beats.cancel()
            self._beats = None

    terminate = stop
