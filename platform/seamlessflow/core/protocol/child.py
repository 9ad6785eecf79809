"""Supervisor ↔ its own children (trainer, agent runner): newline-delimited JSON over an inherited socket.

The file descriptor number is given as `--control-fd`. The child is started once per (job, role) with a `WarmProcess`
(JSON, `--warm-process FILE`), says `Ready`, and may then be begun, drained and begun again: it outlives phases. It
exits when the socket closes.
"""

from uuid import UUID

import msgspec

from seamlessflow.core.protocol.worker import PhaseOrder
from seamlessflow.core.types.ledger import IdleCause, LedgerState


class Begin(msgspec.Struct, frozen=True, kw_only=True, tag_field="type", tag="begin"):
    """Supervisor → child: work under this order."""

    order: PhaseOrder


class Drain(msgspec.Struct, frozen=True, kw_only=True, tag_field="type", tag="drain"):
    """Supervisor → child: finish what must be finished (a step in progress and its publication), then say Ended.

    After `grace_s` what is still under way is cut: episodes are requeued, a step is given up. None: an agent runner
    takes its own time, a trainer as long as its step does.
    """

    phase_id: UUID
    grace_s: float | None = None


class Renew(msgspec.Struct, frozen=True, kw_only=True, tag_field="type", tag="renew"):
    """Supervisor → child: present this credential from now on; the one before expires."""

    phase_id: UUID
    credential: str


class Ping(msgspec.Struct, frozen=True, kw_only=True, tag_field="type", tag="ping"):
    """Supervisor → child: say that you live. A child that does not for long is killed."""


class Pong(msgspec.Struct, frozen=True, kw_only=True, tag_field="type", tag="pong"):
    """Child → supervisor: the answer to a Ping."""


class Ready(msgspec.Struct, frozen=True, kw_only=True, tag_field="type", tag="ready"):
    """Child → supervisor: loaded, may be begun."""


class Begun(msgspec.Struct, frozen=True, kw_only=True, tag_field="type", tag="begun"):
    """Child → supervisor: of a gang, whose members take their time to come together: this one has."""

    phase_id: UUID


class Doing(msgspec.Struct, frozen=True, kw_only=True, tag_field="type", tag="doing"):
    """Child → supervisor: the ledger state from now on."""

    state: LedgerState
    cause: IdleCause | None = None


class Ended(msgspec.Struct, frozen=True, kw_only=True, tag_field="type", tag="ended"):
    """Child → supervisor: the phase is over; the child stays warm."""

    phase_id: UUID
    reason: str = ""


class Failed(msgspec.Struct, frozen=True, kw_only=True, tag_field="type", tag="failed"):
    """Child → supervisor: the phase cannot go on; one sentence for people."""

    phase_id: UUID
    reason: str


ToChild = Begin | Drain | Renew | Ping
FromChild = Ready | Pong | Begun | Doing | Ended | Failed


def encode_line(message: ToChild | FromChild) -> bytes:
    return msgspec.json.encode(message) + b"\n"


def decode_to_child(line: bytes) -> ToChild:
    message: ToChild = msgspec.json.decode(line, type=ToChild)
    return message


def decode_from_child(line: bytes) -> FromChild:
    message: FromChild = msgspec.json.decode(line, type=FromChild)
    return message
