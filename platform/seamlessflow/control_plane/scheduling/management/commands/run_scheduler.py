"""Run the scheduler: one leader decides, stand-bys wait. Ends cleanly on SIGTERM and SIGINT."""

import gc
import signal
import threading
from pathlib import Path
from types import FrameType
from typing import Any

from django.core.management.base import BaseCommand, CommandParser

from seamlessflow.control_plane.live.feeder import feeding
from seamlessflow.control_plane.liveness import scheduler_watchdog
from seamlessflow.control_plane.scheduling.leading.leader import Leader

GC_THRESHOLD = 20_000  # new containers until the next collection of the youngest


class Command(BaseCommand):
    help = __doc__

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument(
            "--alive-file",
            type=Path,
            help="File that is touched about twice a second while the loop runs, for health checks.",
        )

    def handle(self, *args: Any, **options: Any) -> None:
        stop = threading.Event()

        def ask_to_stop(signum: int, frame: FrameType | None) -> None:
            stop.set()

        signal.signal(signal.SIGTERM, ask_to_stop)
        signal.signal(signal.SIGINT, ask_to_stop)
        alive_file: Path | None = options["alive_file"]
        watchdog = scheduler_watchdog().start()

        def turned() -> None:
            watchdog.beat()
            if alive_file:
                alive_file.touch()

        # A cycle makes many values that are gone with it: to search all others for cycles each time would cost more.
        gc.freeze()
        gc.set_threshold(GC_THRESHOLD, 20, 50)
        try:
            Leader(stop=stop, companion=feeding, on_turn=turned).run()
        finally:
            watchdog.stop()
