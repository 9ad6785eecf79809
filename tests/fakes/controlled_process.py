"""A trainer or agent runner that does no work: it speaks the child protocol and behaves as
FAKE_CHILD says.

`work` (default): says that it trains until it is drained. `end`: ends each phase at once. `fail`: refuses each phase.
`input`: refuses what its job names. `crash`: exits with status 3 when a phase begins. `deaf`: never answers a drain.
`renewed`: ends with a renewed credential. With a `CountingDevice` a trainer allocates `FAKE_TRAINER_BYTES`
(awake,asleep) from it, and exits if it does not get them.
"""

import argparse
import json
import os
import socket
import sys
from pathlib import Path

import msgspec

from seamlessflow.core.lifecycle.phases import FailureCause
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
from seamlessflow.core.types.tags import Role
from tests.fakes.counting_device import CountingDevice, sizes


class Memory:
    """What the trainer has of its device, if there is one."""

    def __init__(self, role: Role) -> None:
        self._device = CountingDevice.of_environment() if role is Role.TRAIN else None
        self.awake, self.kept = sizes("FAKE_TRAINER_BYTES") if self._device else (0, 0)

    def load(self) -> None:
        if self._device is not None:
            self._device.hold(self.awake)

    def offload(self) -> None:
        if self._device is not None:
            self._device.hold(self.kept)


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
    memory = Memory(warm_process.role)
    memory.load()
    memory.offload()
    print(f"fake {warm_process.role} is ready", flush=True)
    control.sendall(encode_line(Ready(kept_bytes=memory.kept)))
    for line in control.makefile("rb"):
        if json.loads(line)["type"] == "ping":  # read plainly: not every version of the protocol has it
            control.sendall(b'{"type":"pong"}\n')
            continue
        for answer in answers(decode_to_child(line), os.environ.get("FAKE_CHILD", "work"), memory):
            control.sendall(encode_line(answer))


def answers(message: ToChild, behaviour: str, memory: Memory) -> list[FromChild]:
    if isinstance(message, Begin):
        phase_id = message.order.phase_id
        if behaviour == "crash":
            print("about to crash", flush=True)
            sys.exit(3)
        if behaviour == "end":
            return [Ended(phase_id=phase_id, reason="enough")]
        if behaviour == "fail":
            return [Failed(phase_id=phase_id, reason="the loss is not finite")]
        if behaviour == "input":
            return [Failed(phase_id=phase_id, reason="no such layer", cause=FailureCause.INPUT)]
        memory.load()
        begun = [] if message.order.gang is None else [Begun(phase_id=phase_id)]
        return [*begun, Doing(state=LedgerState.TRAINING)]
    if isinstance(message, Renew):
        said = Ended(phase_id=message.phase_id, reason=f"renewed: {message.credential}")
        return [said] if behaviour == "renewed" else []
    if behaviour == "deaf" or not isinstance(message, Drain):
        return []
    memory.offload()
    return [Ended(phase_id=message.phase_id, kept_bytes=memory.kept, peak_bytes=memory.awake)]


if __name__ == "__main__":
    main()
