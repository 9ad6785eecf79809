"""Supervisor ↔ its own children (trainer, agent runner, engine): newline-delimited JSON over an inherited socket.

The file descriptor number is given as `--control-fd`. The child is started once per (job, role) with a `WarmProcess`
(JSON, `--warm-process FILE`) and sends `Ready`. It may then work on one phase after another, because it outlives
phases. It exits when the socket closes.

A child, or an engine, that cannot use what its job names, on whichever machine, writes a last line that begins with
`INPUT_FAULT_MARK` and exits with `EXIT_INPUT_FAULT`. That says nothing of the machine.
"""

from uuid import UUID

import msgspec

from seamlessflow.core.lifecycle.phases import FailureCause
from seamlessflow.core.protocol.worker import PhaseOrder
from seamlessflow.core.types.ledger import IdleCause, LedgerState

EXIT_INPUT_FAULT = 65  # EX_DATAERR of sysexits.h; interpreters and libraries exit with none of these
INPUT_FAULT_MARK = "input fault: "


class Begin(msgspec.Struct, frozen=True, kw_only=True, tag_field="type", tag="begin"):
    """Supervisor → child: begin to work on this order."""

    order: PhaseOrder


class Drain(msgspec.Struct, frozen=True, kw_only=True, tag_field="type", tag="drain"):
    """Supervisor → child: finish what must be finished (a step in progress and its publication), then send Ended.

    An engine refuses new requests, and ends those in flight with the tokens so far.

    Work that still runs after `grace_s` is cut short: episodes are requeued, a step is abandoned. With None, the agent
    runner decides how long to wait, and a trainer finishes its step.
    """

    phase_id: UUID
    grace_s: float | None = None


class Renew(msgspec.Struct, frozen=True, kw_only=True, tag_field="type", tag="renew"):
    """Supervisor → child: use this credential from now on; the previous one expires."""

    phase_id: UUID
    credential: str


class Ping(msgspec.Struct, frozen=True, kw_only=True, tag_field="type", tag="ping"):
    """Supervisor → child: answer with a Pong. A child that fails to answer for too long is killed."""


class Pong(msgspec.Struct, frozen=True, kw_only=True, tag_field="type", tag="pong"):
    """Child → supervisor: the answer to a Ping."""


class Ready(msgspec.Struct, frozen=True, kw_only=True, tag_field="type", tag="ready"):
    """Child → supervisor: the child is loaded and can begin a phase."""

    kept_bytes: int = 0  # of each device's memory, until a phase begins
    port: int = 0  # an engine's, for gateways


class Begun(msgspec.Struct, frozen=True, kw_only=True, tag_field="type", tag="begun"):
    """Child → supervisor: this member has met the rest of its gang, or this engine admits gateways.

    Other children do not send it.
    """

    phase_id: UUID


class Doing(msgspec.Struct, frozen=True, kw_only=True, tag_field="type", tag="doing"):
    """Child → supervisor: the machine's activity from now on, as a state of its ledger."""

    state: LedgerState
    cause: IdleCause | None = None


class Serving(msgspec.Struct, frozen=True, kw_only=True, tag_field="type", tag="serving"):
    """Engine → supervisor: how many requests of gateways are in flight. The first and the last are sent at once."""

    num_in_flight: int


class Ended(msgspec.Struct, frozen=True, kw_only=True, tag_field="type", tag="ended"):
    """Child → supervisor: the phase is over; the child stays warm."""

    phase_id: UUID
    reason: str = ""
    # Of each device's memory, until the next phase. None: agents, and a trainer that exits without having left.
    kept_bytes: int | None = None
    peak_bytes: int = 0  # the most that it ever used of each device; 0: not known


class Failed(msgspec.Struct, frozen=True, kw_only=True, tag_field="type", tag="failed"):
    """Child → supervisor: the phase cannot continue; `reason` says why in one sentence."""

    phase_id: UUID
    reason: str
    cause: FailureCause = FailureCause.WORK  # or input


ToChild = Begin | Drain | Renew | Ping
FromChild = Ready | Pong | Begun | Doing | Serving | Ended | Failed


def encode_line(message: ToChild | FromChild) -> bytes:
    return msgspec.json.encode(message) + b"\n"


def decode_to_child(line: bytes) -> ToChild:
    message: ToChild = msgspec.json.decode(line, type=ToChild)
    return message


def decode_from_child(line: bytes) -> FromChild:
    message: FromChild = msgspec.json.decode(line, type=FromChild)
    return message
