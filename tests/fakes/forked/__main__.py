"""`python -m tests.fakes.forked --control-fd N`: describe this process in JSON, then obey one
command."""

import json
import os
import signal
import socket
import sys
from pathlib import Path

import numpy as np

from seamlessflow_workers.process.fork_server.preloading import open_descriptors


def main() -> None:
    control = socket.socket(fileno=int(sys.argv[2]))
    facts = {
        "pid": os.getpid(),
        "parent": os.getppid(),
        "session": os.getsid(0),
        "arguments": sys.argv[1:],
        "environment": dict(os.environ),
        "folder": str(Path.cwd()),
        "is_main": __name__ == "__main__" and sys.modules["__main__"].__dict__ is globals(),
        "was_forked": "seamlessflow_workers.process.fork_server.serving" in sys.modules,
        "descriptors": sorted(open_descriptors()),
        "draw": int(np.random.randint(1 << 62)),
        "priority": os.getpriority(os.PRIO_PROCESS, 0),
    }
    control.sendall(json.dumps(facts).encode())
    word = control.recv(100).decode()
    if word == "break":
        raise RuntimeError("as I was told")
    if word == "die":
        os.kill(os.getpid(), signal.SIGTERM)
    sys.exit(int(word))


if __name__ == "__main__":
    main()
