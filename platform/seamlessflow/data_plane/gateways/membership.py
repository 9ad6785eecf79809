"""Who the gateways are, as this one last read it, and which of them owns a group or a job.

`join` and `sign` run in the transaction that gives this gateway's sign of life; `set` then makes their result known.
Invariant: every gateway that has read the same rows names the same owner. Views may differ for about a second, so what
an owner may write is decided by rows alone (`store/gateways`).
"""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from uuid import UUID

from seamlessflow.core.placement.engine_key import EngineKey
from seamlessflow.core.placement.rendezvous import rendezvous_owner
from seamlessflow.data_plane import metrics
from seamlessflow.data_plane.store.connection import Connection
from seamlessflow.data_plane.store.gateways import (
    Member,
    Paces,
    gateway_join,
    gateway_leave,
    gateway_sign,
    gateways_end_silent,
    gateways_read,
)

LEASE_S = 5.0  # a gateway that has given no sign of life for so long loses its epoch to the others

Demands = Mapping[EngineKey, int]  # how many turns a gateway has for each engine


@dataclass(frozen=True, slots=True)
class Signed:
    """What a sign of life showed. `has_new_epoch`: the others had ended the one before."""

    epoch: int
    members: Sequence[Member]
    has_new_epoch: bool
    ended: Sequence[str] = ()  # names of gateways whose epochs this one has ended


def _no_demands() -> Demands:
    return {}


def _no_turns() -> Mapping[UUID, int]:
    return {}


def _no_paces() -> Paces | None:
    return None


def _ignore_demands(_: Mapping[str, Demands]) -> None:
    """Do nothing: engines are not divided among gateways."""


@dataclass(slots=True)
class Membership:
    """One per process. `on_news` gets what each gateway wants of the engines whenever that was read."""

    name: str  # the base URL at which other gateways reach this one
    public_url: str
    demands: Callable[[], Demands] = _no_demands
    turns: Callable[[], Mapping[UUID, int]] = _no_turns  # the most that ran or waited lately, by job
    paces: Callable[[], Paces | None] = _no_paces  # of full engines; None: not due
    on_news: Callable[[Mapping[str, Demands]], None] = _ignore_demands
    epoch: int = 0  # 0: it has not joined yet
    _members: dict[str, Member] = field(default_factory=dict)
    _changed: asyncio.Event = field(default_factory=asyncio.Event)  # set once these members are out of date

    @property
    def has_peers(self) -> bool:
        return len(self._members) > 1

    def owner(self, key: UUID) -> Member:
        """Return the gateway that owns a group or a job."""
        return self._members[rendezvous_owner(key.bytes, self._members)]

    def is_me(self, member: Member) -> bool:
        return member.name == self.name

    def client_url(self, member: Member) -> str:
        """Return the base URL for clients of `member`; empty if all gateways have the same."""
        if all(other.public_url == member.public_url for other in self._members.values()):
            return ""
        return f"{member.public_url}/v1"

    async def gone(self, name: str) -> None:
        """Return once there is no gateway of that name; one that starts again at once never was away."""
        while name in self._members:
            await self._changed.wait()

    async def join(self, connection: Connection) -> Signed:
        """Begin an epoch."""
        epoch = await gateway_join(connection, self.name, self.public_url)
        return await self._look(connection, epoch, has_new_epoch=True)

    async def sign(self, connection: Connection) -> Signed:
        """Give a sign of life, and end the epochs of gateways that have been silent for too long."""
        if not await gateway_sign(connection, self.epoch, self.demands(), self.turns(), self.paces()):
            return await self.join(connection)
        return await self._look(connection, self.epoch, has_new_epoch=False)

    async def leave(self, connection: Connection) -> None:
        """End this gateway's epoch, so that others need not wait for its lease."""
        await gateway_leave(connection, self.epoch)

    def set(self, signed: Signed) -> None:
        """Apply the sign of life that was committed."""
        self.epoch = signed.epoch
        before, self._members = self._members, {member.name: member for member in signed.members}
        if before.keys() != self._members.keys():
            changed, self._changed = self._changed, asyncio.Event()
            changed.set()
        metrics.GATEWAYS.set(len(self._members))
        self.on_news({member.name: member.demands for member in signed.members})

    async def _look(self, connection: Connection, epoch: int, *, has_new_epoch: bool) -> Signed:
        members = await gateways_read(connection, lease_s=LEASE_S)
        ended: list[str] = []
        if any(member.is_silent for member in members):
            ended = await gateways_end_silent(connection, lease_s=LEASE_S)
            members = await gateways_read(connection, lease_s=LEASE_S)
        return Signed(epoch, members, has_new_epoch, ended)
