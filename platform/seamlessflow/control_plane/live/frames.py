"""What goes over `/ws/live`: frames `{v, topic, epoch, seq, kind, at, data}`, times in epoch milliseconds.
A message has one or more of them, each on a line of its own.

Topics: `jobs:<project uuid>`, `job:<shown id>`, `group:<shown id>`, `machines` (of the open pool), `machines:<pool>`.
`epoch` names one life of the broker's numbering: after a change, numbers begin anew and clients take a snapshot.
Snapshot and delta have the same keys of rows; a row replaces the one with its key, so applying a delta twice changes
nothing.
"""

from collections.abc import Mapping
from functools import cached_property
from typing import Any
from uuid import UUID

import msgspec

from seamlessflow.core.protocol.live_rows import FRAME_VERSION, FrameKind
from seamlessflow.core.types.ids import IdKind, show_id
from seamlessflow.core.types.pools import OPEN_POOL

MACHINES_TOPIC = "machines"
# Of no pool: it carries the beat to those who may not see the open one.
NO_MACHINES_TOPIC = "machines:"


class Frame(msgspec.Struct, frozen=True, kw_only=True, dict=True):
    """A frame as sockets send it. `core.protocol.live_rows` types its data by topic and kind."""

    v: int = FRAME_VERSION
    topic: str
    epoch: str
    seq: int
    kind: FrameKind
    at: int
    data: Mapping[str, Any] | msgspec.Raw  # raw: JSON as the broker gave it

    @cached_property
    def text(self) -> str:
        """Return the frame as it is sent; it is encoded once for all sockets."""
        return msgspec.json.encode(self).decode()


class Position(msgspec.Struct, frozen=True, array_like=True):
    """The last delta of a topic that was published, or that a client has read."""

    epoch: str = ""
    seq: int = 0


class ClientMessage(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A message from the client. `since` names its last delta by topic; it gets the later ones if they are still
    stored.
    """

    token: str | None = None
    subscribe: list[str] = []
    unsubscribe: list[str] = []
    since: dict[str, Position] = {}


def machines_topic(pool: str) -> str:
    """Return the topic of one pool's machines. A socket listens to the pools that its projects may use."""
    return MACHINES_TOPIC if pool == OPEN_POOL else f"{NO_MACHINES_TOPIC}{pool}"


def pool_of(topic: str) -> str:
    return topic.removeprefix(NO_MACHINES_TOPIC) if topic != MACHINES_TOPIC else OPEN_POOL


def jobs_topic(project_id: object) -> str:
    return f"jobs:{project_id}"


def job_topic(job_id: UUID) -> str:
    return f"job:{show_id(IdKind.JOB, job_id)}"
