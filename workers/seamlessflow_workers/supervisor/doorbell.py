"""The doorbell: a Celery worker on the queue `machine.<name>` that only writes one byte to a socket.

The worker takes the task `seamlessflow.doorbell` (JSON) and ignores its arguments, because orders come over HTTP. It
writes one byte for each message, and one at each start, to the descriptor inherited from the supervisor.
Invariant: nothing in a message is executed or trusted.

Run as `python -m seamlessflow_workers.supervisor.doorbell --machine NAME --wake-up-fd N` with BROKER_URL set.
"""

import argparse
import contextlib
import os
import socket
from typing import Any

os.environ.setdefault("NOSETPS", "1")  # before the import: keeps Celery from replacing the process title

from celery import Celery
from celery.signals import worker_ready

TASK_NAME = "seamlessflow.doorbell"
QUIET_FLAGS = ("--without-mingle", "--without-gossip", "--without-heartbeat")


def queue_name(machine: str) -> str:
    return f"machine.{machine}"


def doorbell_app(*, broker_url: str, machine: str, wake_up: socket.socket) -> Celery:
    # Without fixups, so that a DJANGO_SETTINGS_MODULE in the environment has no effect.
    app = Celery("seamlessflow_doorbell", broker=broker_url, fixups=())
    app.conf.update(
        accept_content=["json"],
        task_serializer="json",
        task_ignore_result=True,
        task_default_queue=queue_name(machine),
        broker_connection_retry_on_startup=True,
        broker_connection_max_retries=None,
        worker_enable_remote_control=False,
        worker_send_task_events=False,
        worker_hijack_root_logger=False,
    )

    @app.task(name=TASK_NAME, ignore_result=True)
    def wake_up_supervisor(
        *_args: Any, **_kwargs: Any
    ) -> None:  # tolerate arguments that a newer control plane may add
        _send_wake_up(wake_up)

    return app


def _send_wake_up(wake_up: socket.socket) -> None:
    with contextlib.suppress(BlockingIOError):  # the supervisor has enough bytes to read
        wake_up.send(b"!", socket.MSG_DONTWAIT)


def main() -> None:
    parser = argparse.ArgumentParser(prog="seamlessflow-doorbell")
    parser.add_argument("--machine", required=True)
    parser.add_argument("--wake-up-fd", type=int, required=True)
    options = parser.parse_args()
    wake_up = socket.socket(fileno=options.wake_up_fd)
    app = doorbell_app(broker_url=os.environ["BROKER_URL"], machine=options.machine, wake_up=wake_up)

    @worker_ready.connect(weak=False)
    def on_ready(**_details: Any) -> None:
        _send_wake_up(wake_up)  # in case the previous child died with a message

    node = ("-n", f"{options.machine}@seamlessflow", "-Q", queue_name(options.machine))
    app.worker_main(["--quiet", "worker", "-P", "solo", "-l", "WARNING", *node, *QUIET_FLAGS])


if __name__ == "__main__":
    main()
