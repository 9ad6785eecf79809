"""The doorbell: a Celery worker on the queue `machine.<name>` whose only deed is to write one byte to a socket.

Enters: task `seamlessflow.doorbell` (JSON; its arguments are ignored: orders come over HTTP). Leaves: one byte a
message to the descriptor inherited from the supervisor. Invariant: nothing in a message is executed or believed.

Run as `python -m seamlessflow_workers.supervisor.doorbell --machine NAME --bell-fd N` with BROKER_URL set.
"""

import argparse
import os
import socket
from typing import Any

from celery import Celery

TASK_NAME = "seamlessflow.doorbell"


def queue_name(machine: str) -> str:
    return f"machine.{machine}"


def doorbell_app(*, broker_url: str, machine: str, bell: socket.socket) -> Celery:
    app = Celery("seamlessflow_doorbell", broker=broker_url)
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
    def ring(*_args: Any, **_kwargs: Any) -> None:  # whatever a newer control plane adds is tolerated
        try:
            bell.send(b"!", socket.MSG_DONTWAIT)
        except BlockingIOError:
            return  # the supervisor has rings enough to read

    return app


def main() -> None:
    parser = argparse.ArgumentParser(prog="seamlessflow-doorbell")
    parser.add_argument("--machine", required=True)
    parser.add_argument("--bell-fd", type=int, required=True)
    options = parser.parse_args()
    bell = socket.socket(fileno=options.bell_fd)
    app = doorbell_app(broker_url=os.environ["BROKER_URL"], machine=options.machine, bell=bell)
    app.worker_main(
        ["worker", "-P", "solo", "-Q", queue_name(options.machine), "-n", f"{options.machine}@seamlessflow"]
        + ["--without-mingle", "--without-gossip", "--without-heartbeat", "-l", "WARNING"]
    )


if __name__ == "__main__":
    main()
