"""How a trainer and its gang's leader prove to each other that they belong together, over a new connection.

Both know the gang's secret and use it to answer the other's random number. So neither a stranger nor a process that
listened to an earlier exchange gets in, and no trainer takes commands from a process that merely has the leader's
port. What follows is neither encrypted nor signed, like the collectives beside it: the network must be trusted.
"""

import hashlib
import hmac
import secrets
import socket
from typing import NamedTuple, TypeVar
from uuid import UUID

import msgspec

from seamlessflow.core.protocol.worker import GangOrder
from seamlessflow_workers.train.distributed.rank_commands import frame_receive, frame_send
from seamlessflow_workers.train.step_engine import RankGone

MAX_FRAME_BYTES = 4096
ANSWER_S = 5.0  # a trainer answers faster than this
_NUM_NONCE_BYTES = 32
_KEEPALIVE = {"TCP_KEEPIDLE": 10, "TCP_KEEPINTVL": 5, "TCP_KEEPCNT": 3}  # seconds, seconds, count


class _Hello(msgspec.Struct, frozen=True):
    gang_id: UUID
    member: int
    nonce: bytes
    num_devices: int = 1


class _Challenge(msgspec.Struct, frozen=True):
    nonce: bytes
    proof: bytes


class _Answer(msgspec.Struct, frozen=True):
    proof: bytes


class _Welcome(msgspec.Struct, frozen=True):
    gang_id: UUID


_Frame = TypeVar("_Frame", _Hello, _Challenge, _Answer, _Welcome)


class AdmittedMember(NamedTuple):
    """A member that has proved itself."""

    member: int
    num_devices: int  # that it trains on


class NotAdmitted(RuntimeError):
    """The other end did not prove in time that it belongs to this gang."""


def member_admit(connection: socket.socket, gang: GangOrder) -> AdmittedMember:
    """Do the leader's side; return which member this is. Raises NotAdmitted."""
    connection.settimeout(ANSWER_S)
    hello = _receive(connection, _Hello)
    if hello.gang_id != gang.gang_id or not 0 < hello.member < len(gang.machines):
        raise NotAdmitted(f"member {hello.member} of gang {hello.gang_id} is not expected here")
    nonce = secrets.token_bytes(_NUM_NONCE_BYTES)
    proof = _proof(gang, "leader", hello.nonce, nonce, hello.member)
    _send(connection, _Challenge(nonce=nonce, proof=proof))
    expected = _proof(gang, "member", hello.nonce, nonce, hello.member)
    if not hmac.compare_digest(_receive(connection, _Answer).proof, expected):
        raise NotAdmitted(
            f"the process that claims to be member {hello.member} does not know the gang's secret"
        )
    _send(connection, _Welcome(gang_id=gang.gang_id))
    _configure(connection)
    return AdmittedMember(hello.member, hello.num_devices)


def leader_join(connection: socket.socket, gang: GangOrder, *, num_devices: int) -> None:
    """Do a member's side; return once the leader has admitted it, however long that takes. Raises NotAdmitted.

    `num_devices`: how many devices this machine trains on, for the leader.
    """
    nonce = secrets.token_bytes(_NUM_NONCE_BYTES)
    connection.settimeout(None)  # the leader's trainer may have to start first
    hello = _Hello(gang_id=gang.gang_id, member=gang.member, nonce=nonce, num_devices=num_devices)
    _send(connection, hello)
    challenge = _receive(connection, _Challenge)
    expected = _proof(gang, "leader", nonce, challenge.nonce, gang.member)
    if not hmac.compare_digest(challenge.proof, expected):
        raise NotAdmitted(f"the process at {gang.address} does not know the gang's secret")
    _send(connection, _Answer(proof=_proof(gang, "member", nonce, challenge.nonce, gang.member)))
    _receive(connection, _Welcome)
    _configure(connection)


def _configure(connection: socket.socket) -> None:
    """Make the connection blocking; keep-alives detect a vanished machine within half a minute."""
    connection.settimeout(None)
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for name, value in _KEEPALIVE.items():
        connection.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)


def _proof(gang: GangOrder, speaker: str, member_nonce: bytes, leader_nonce: bytes, member: int) -> bytes:
    message = b"|".join(
        [speaker.encode(), str(member).encode(), member_nonce.hex().encode(), leader_nonce.hex().encode()]
    )
    return hmac.new(gang.secret.encode(), message, hashlib.sha256).digest()


def _send(connection: socket.socket, frame: _Hello | _Challenge | _Answer | _Welcome) -> None:
    try:
        frame_send(connection, msgspec.msgpack.encode(frame))
    except RankGone as error:
        raise NotAdmitted(str(error)) from error


def _receive(connection: socket.socket, kind: type[_Frame]) -> _Frame:
    try:
        return msgspec.msgpack.decode(frame_receive(connection, max_bytes=MAX_FRAME_BYTES), type=kind)
    except (RankGone, msgspec.DecodeError) as error:
        raise NotAdmitted(f"the connection ended, or is not from a trainer: {error}") from error
