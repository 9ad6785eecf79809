"""Commands of a trainer's rank 0 to the other ranks: the calls of its engine, in order, as frames on a socket.

A frame is its length (8 bytes, big-endian) followed by msgpack. The commands have no answers: the ranks meet in the
collectives of the work. Ranks on other machines also learn of their gang's phases by these frames, and report when they
have joined one. If the socket ends, rank 0 is gone, and the other ranks exit.
"""

import socket
import struct
from collections.abc import Iterable
from pathlib import Path
from uuid import UUID

import msgspec

from seamlessflow.core.batching.format import batch_decode
from seamlessflow.core.types.ledger import IdleCause, LedgerState
from seamlessflow_workers.train.step_engine import DeviceUse, RankGone, StepEngine
from seamlessflow_workers.weights.transports.file.shards import ShardOrder

_LENGTH = struct.Struct(">Q")
MAX_REPORT_BYTES = 1 << 16


class Load(msgspec.Struct, frozen=True, tag="load"):
    """The first command: this rank's number, the number of ranks, and where they meet."""

    rank: int
    local_rank: int  # its number on its machine, which is also the number of its GPU
    num_ranks: int
    store_host: str  # "" for another machine: the address at which it reached rank 0
    store_port: int
    address: str  # of this machine, for the others; "" for another machine: its own end of that connection
    model_path: str
    spec: bytes  # JSON of core.job_spec.JobSpec
    proof_path: str = (
        ""  # for another machine: a file with `proof`, which it can read if it sees the same artifacts
    )
    proof: str = ""
    cores: list[
        int
    ] = []  # where it computes; empty: wherever it may, or another machine, which knows its own


class Step(msgspec.Struct, frozen=True, tag="step"):
    batch: bytes  # core.batching.format
    step_version: int
    optimizer_step: int


class Publish(msgspec.Struct, frozen=True, tag="publish"):
    """Write this rank's shards of a version."""

    order: ShardOrder


class Save(msgspec.Struct, frozen=True, tag="save"):
    folder: str
    tag: str


class Saved(msgspec.Struct, frozen=True, tag="saved"):
    waits: bool


class Restore(msgspec.Struct, frozen=True, tag="restore"):
    folder: str
    tag: str


class Offload(msgspec.Struct, frozen=True, tag="offload"):
    pass


class Reload(msgspec.Struct, frozen=True, tag="reload"):
    pass


class LeaderState(msgspec.Struct, frozen=True, tag="told"):
    """To other machines: the leader's state from now on, as in the ledger."""

    state: LedgerState
    cause: IdleCause | None


class Release(msgspec.Struct, frozen=True, tag="release"):
    """To other machines: the phase of this gang is over."""

    gang_id: UUID
    reason: str


class PhaseBegun(msgspec.Struct, frozen=True, tag="here"):
    """From another machine: its phase of this gang has begun."""

    gang_id: UUID


class Refused(msgspec.Struct, frozen=True, tag="refused"):
    """From another machine, before it exits: why it cannot join, in a clause."""

    reason: str


Command = Load | Step | Publish | Save | Saved | Restore | Offload | Reload | LeaderState | Release
Report = PhaseBegun | Refused
_decoder: msgspec.msgpack.Decoder[Command] = msgspec.msgpack.Decoder(Command)
_report_decoder: msgspec.msgpack.Decoder[Report] = msgspec.msgpack.Decoder(Report)


def carry_out(command: Command, engine: StepEngine) -> DeviceUse | None:
    """Execute a command of rank 0 on this rank. Return what its device keeps, if the command was to leave it."""
    match command:
        case Step(batch=batch, step_version=version, optimizer_step=number):
            engine.step(batch_decode(batch), step_version=version, optimizer_step=number)
        case Publish(order=order):
            engine.shards_write(order)
        case Save(folder=folder, tag=tag):
            engine.state_save(Path(folder), tag)
        case Saved(waits=waits):
            engine.state_saved(waits=waits)
        case Restore(folder=folder, tag=tag):
            engine.state_load(Path(folder), tag)
        case Offload():
            return engine.offload()
        case Reload():
            engine.reload()
        case _:
            raise ValueError(f"a loaded rank cannot take the command {type(command).__name__}")
    return None


def command_send(connections: Iterable[socket.socket], command: Command) -> None:
    """Send the command to each connection, encoded once. Raises RankGone."""
    raw = msgspec.msgpack.encode(command)
    for connection in connections:
        frame_send(connection, raw)


def command_receive(connection: socket.socket) -> Command:
    """Return the next command. Raises RankGone."""
    try:
        return _decoder.decode(frame_receive(connection))
    except msgspec.DecodeError as error:
        raise RankGone(f"rank 0 of the trainer sent something other than a command: {error}") from error


def report_send(connection: socket.socket, report: Report) -> None:
    """Send a report to rank 0. Raises RankGone."""
    frame_send(connection, msgspec.msgpack.encode(report))


def report_receive(connection: socket.socket) -> Report:
    """Return the next report of a rank on another machine. Raises RankGone."""
    try:
        return _report_decoder.decode(frame_receive(connection, max_bytes=MAX_REPORT_BYTES))
    except msgspec.DecodeError as error:
        raise RankGone(f"a rank of the trainer sent something other than a report: {error}") from error


def frame_send(connection: socket.socket, raw: bytes) -> None:
    """Send a frame. Raises RankGone."""
    try:
        connection.sendall(_LENGTH.pack(len(raw)))
        connection.sendall(raw)
    except OSError as error:
        raise RankGone(f"a rank of the trainer cannot be reached any more: {error}") from error


def frame_receive(connection: socket.socket, *, max_bytes: int | None = None) -> bytearray:
    """Return the next frame, of at most `max_bytes`. Raises RankGone."""
    (length,) = _LENGTH.unpack(_read(connection, _LENGTH.size))
    if max_bytes is not None and length > max_bytes:
        raise RankGone(f"received a frame of {length} bytes; at most {max_bytes} are accepted")
    return _read(connection, length)


def _read(connection: socket.socket, num_bytes: int) -> bytearray:
    raw = bytearray(num_bytes)
    view = memoryview(raw)
    while view:
        try:
            num_read = connection.recv_into(view)
        except OSError as error:
            raise RankGone(f"the other end of a trainer is gone: {error}") from error
        if num_read == 0:
            raise RankGone("the other end of a trainer has ended")
        view = view[num_read:]
    return raw
