"""`python -m seamlessflow_workers.process.fork_server --control-fd N`: see `serving`."""

import argparse
import os
import signal
import socket

from seamlessflow_workers.process.fork_server.preloading import open_descriptors
from seamlessflow_workers.process.fork_server.serving import STANDARD_STREAMS, serve
from seamlessflow_workers.process.launch import bind_to_parent


def main() -> None:
    parser = argparse.ArgumentParser(prog="seamlessflow_workers.process.fork_server")
    parser.add_argument("--control-fd", type=int, required=True, help="inherited socket to the supervisor")
    arguments = parser.parse_args()
    supervisor_pid = os.getppid()
    bind_to_parent(parent_pid=supervisor_pid, death_signal=signal.SIGKILL)
    for descriptor in open_descriptors() - STANDARD_STREAMS - {arguments.control_fd}:
        # Inherited from the program that started the supervisor; children must not get it.
        os.close(descriptor)
    child = serve(socket.socket(fileno=arguments.control_fd), supervisor_pid=supervisor_pid)
    child.become()


if __name__ == "__main__":
    main()
