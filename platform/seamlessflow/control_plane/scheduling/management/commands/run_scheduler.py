"""Run the scheduler: one leader decides, stand-bys wait. Ends cleanly on SIGTERM and SIGINT."""

import signal
import threading
from types import FrameType
from typing import Any

from django.core.management.base import BaseCommand

from seamlessflow.control_plane.live.feeder import feeding
from seamlessflow.control_plane.scheduling.leader import Leader


class Command(BaseCommand):
    help = __doc__

    def handle(self, *args: Any, **options: Any) -> None:
        stop = threading.Event()

        def ask_to_stop(signum: int, frame: FrameType | None) -> None:
            stop.set()

        signal.signal(signal.SIGTERM, ask_to_stop)
        signal.signal(signal.SIGINT, ask_to_stop)
        Leader(stop=stop, companion=feeding).run()
