"""The fork server's loop: one request after another, until the supervisor closes the socket.

It takes `Preload` and `Fork` from the supervisor and starts children of the supervisor. Invariant: it reports modules
as ready only if `preloading.unfit` finds no fault.
"""

import os
import resource
import socket
import sys

from seamlessflow_workers.process.fork_server.child import Child
from seamlessflow_workers.process.fork_server.forking import fork_adopted
from seamlessflow_workers.process.fork_server.messages import (
    MESSAGE_BYTES,
    NUM_DESCRIPTORS_MAX,
    Fork,
    Forked,
    FromForkServer,
    Preload,
    Unable,
    Warm,
    decode_to_fork_server,
    encode,
)
from seamlessflow_workers.process.fork_server.preloading import NotImported, modules_import, unfit

STANDARD_STREAMS = {0, 1, 2}


def serve(control: socket.socket, *, supervisor_pid: int) -> Child:
    """Serve requests until the socket ends. Returns only in a forked process, with what that must become."""
    while True:
        data, descriptors, _, _ = socket.recv_fds(control, MESSAGE_BYTES, NUM_DESCRIPTORS_MAX)
        if not data:
            sys.exit(0)
        request = decode_to_fork_server(data)
        if isinstance(request, Preload):
            control.send(encode(_preload(request, control)))
            continue
        answer = _fork(request, control)
        if answer is None:
            control.close()
            gate, output, *inherited = descriptors
            return Child(request, gate, output, tuple(inherited), supervisor_pid)
        for descriptor in descriptors:
            os.close(descriptor)
        control.send(encode(answer))


def _preload(request: Preload, control: socket.socket) -> FromForkServer:
    try:
        modules_import(request.modules)
    except NotImported as error:
        return Unable(str(error))
    if reason := unfit(STANDARD_STREAMS | {control.fileno()}):
        return Unable(reason)
    print("imported", *request.modules, flush=True)
    return Warm(rss_bytes=resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024)


def _fork(request: Fork, control: socket.socket) -> FromForkServer | None:
    """Fork one process. Returns None in the forked process."""
    sys.stdout.flush()
    sys.stderr.flush()
    try:
        pid = fork_adopted()
    except OSError as error:
        return Unable(f"{request.module} could not be forked: {error}")
    return Forked(pid) if pid else None
