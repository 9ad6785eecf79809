"""What rank 0 of a trainer tells the other ranks: the calls of its engine, in their order, as frames on a socket.

A frame is its length (8 bytes, big-endian) and msgpack. Nothing comes back: ranks meet in the collectives of the work
itself. A socket that ends means that rank 0 is gone, and with it the reason for this rank to live.
"""

import socket
import struct
from collections.abc import Iterable

import msgspec

from seamlessflow_workers.train.step_engine import RankGone

_LENGTH = struct.Struct(">Q")


class Load(msgspec.Struct, frozen=True, tag="load"):
    """The first command: which rank of how many this is, and where all meet."""

    rank: int
    num_ranks: int
    store_port: int  # of a store on the loopback
    model_path: str
    spec: bytes  # JSON of core.job_spec.JobSpec


class Step(msgspec.Struct, frozen=True, tag="step"):
    batch: bytes  # core.batching.format
    step_version: int
    optimizer_step: int


class Gather(msgspec.Struct, frozen=True, tag="gather"):
    """Help rank 0 to put together one bucket of weights that are spread over the ranks."""

    names: list[str]


class Save(msgspec.Struct, frozen=True, tag="save"):
    folder: str
    tag: str


class Restore(msgspec.Struct, frozen=True, tag="restore"):
    folder: str
    tag: str


class Offload(msgspec.Struct, frozen=True, tag="offload"):
    pass


class Reload(msgspec.Struct, frozen=True, tag="reload"):
    pass


Command = Load | Step | Gather | Save | Restore | Offload | Reload
_decoder: msgspec.msgpack.Decoder[Command] = msgspec.msgpack.Decoder(Command)


def command_send(connections: Iterable[socket.socket], command: Command) -> None:
    """The same to each, encoded once. Raises RankGone."""
    raw = msgspec.msgpack.encode(command)
    try:
        for connection in connections:
            connection.sendall(_LENGTH.pack(len(raw)))
            connection.sendall(raw)
    except OSError as error:
        raise RankGone(f"a rank of the trainer cannot be told anything any more: {error}") from error


def command_receive(connection: socket.socket) -> Command:
    """The next command. Raises RankGone."""
    (length,) = _LENGTH.unpack(_read(connection, _LENGTH.size))
    return _decoder.decode(_read(connection, length))


def _read(connection: socket.socket, num_bytes: int) -> bytearray:
    raw = bytearray(num_bytes)
    view = memoryview(raw)
    while view:
        num_read = connection.recv_into(view)
        if num_read == 0:
            raise RankGone("rank 0 of the trainer has ended")
        view = view[num_read:]
    return raw
