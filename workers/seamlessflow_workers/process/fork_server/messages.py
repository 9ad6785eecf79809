"""The messages between a supervisor and its fork server: one JSON object per packet of a SOCK_SEQPACKET pair.

A `Fork` carries descriptors beside it (SCM_RIGHTS): the gate, the output, then those named in `descriptors`.
"""

import msgspec

MESSAGE_BYTES = 1 << 18
NUM_DESCRIPTORS_MAX = 16


class Preload(msgspec.Struct, tag=True, frozen=True):
    """Import these at the lowest priority. The answer is Warm or Unable."""

    modules: list[str]


class Fork(msgspec.Struct, tag=True, frozen=True):
    """Start `python -m module arguments…` with this environment. The answer is Forked or Unable.

    The child waits at its gate, a pipe: a byte lets it in, the end of the pipe makes it exit.
    """

    module: str
    arguments: list[str]
    environment: dict[str, str]
    cores: list[int]  # on which it may run
    descriptors: list[int]  # the numbers that the passed descriptors get in the child


class Warm(msgspec.Struct, tag=True, frozen=True):
    rss_bytes: int


class Forked(msgspec.Struct, tag=True, frozen=True):
    """The process is already a child of the supervisor, and leads its own session."""

    pid: int


class Unable(msgspec.Struct, tag=True, frozen=True):
    reason: str


ToForkServer = Preload | Fork
FromForkServer = Warm | Forked | Unable

encode = msgspec.json.Encoder().encode


def decode_to_fork_server(data: bytes) -> ToForkServer:
    return msgspec.json.decode(data, type=ToForkServer)  # type: ignore[no-any-return]


def decode_from_fork_server(data: bytes) -> FromForkServer:
    return msgspec.json.decode(data, type=FromForkServer)  # type: ignore[no-any-return]
