"""A trainer or agent runner that does no work: it speaks the child protocol and behaves as
FAKE_CHILD says.

`work` (default): says that it trains until it is drained. `end`: ends each phase at once. `fail`:
refuses each phase. `crash`: exits with status 3 when a phase begins. `deaf`: never answers a drain.
`renewed`: ends with a renewed credential.
"""

import argparse
import json
import os
import socket
import sys
from pathlib import Path

import msgspec

from seamlessflow.core.protocol.child import (
    Begin,
    Begun,
    Doing,
    Drain,
    Ended,
    Failed,
    FromChild,
    Ready,
    Renew,
    ToChild,
    decode_to_child,
    encode_line,
)
from seamlessflow.core.protocol.worker import WarmProcess
from seamlessflow.core.types.ledger import LedgerState


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--control-fd", type=int, required=True)
    parser.add_argument("--warm-process", type=Path, required=True)
    parser.add_argument("--rendezvous-fd", type=int)
    options = parser.parse_args()
    if options.rendezvous_fd is not None:  # whoever trains with others can listen for them
        socket.socket(fileno=options.rendezvous_fd).getsockname()
    warm_process = msgspec.json.decode(options.warm_process.read_bytes(), type=WarmProcess)
    control = socket.socket(fileno=options.control_fd)
    print(f"fake {warm_process.role} is ready", flush=True)
    control.sendall(encode_line(Ready()))
    for line in control.makefile("rb"):
        if json.loads(line)["type"] == "ping":  # read plainly: not every version of the protocol has it
            control.sendall(b'{"type":"pong"}\n')
            continue
        for answer in answers(decode_to_child(line), os.environ.get("FAKE_CHILD", "work")):
            control.sendall(encode_line(answer))


def answers(message: ToChild, behaviour: str) -> list[FromChild]:
    if isinstance(message, Begin):
        phase_id = message.order.phase_id
        if behaviour == "crash":
            print("about to crash", flush=True)
            sys.exit(3)
        if behaviour == "end":
            return [Ended(phase_id=phase_id, reason="enough")]
        if behaviour == "fail":
            return [Failed(phase_id=phase_id, reason="the loss is not finite")]
        begun = [] if message.order.gang is None else [Begun(phase_id=phase_id)]
        return [*begun, Doing(state=LedgerState.TRAINING)]
    if isinstance(message, Renew):
        said = Ended(phase_id=message.phase_id, reason=f"renewed: {message.credential}")
        return [said] if behaviour == "renewed" else []
    if behaviour == "deaf" or not isinstance(message, Drain):
        return []
    return [Ended(phase_id=message.phase_id)]


if __name__ == "__main__":
    main()
