"""Makes a tar while it is sent. Takes members of known sizes; yields chunks of bytes and writes nothing to disk."""

import tarfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

BLOCK_BYTES = tarfile.BLOCKSIZE
_END = b"\0" * (2 * BLOCK_BYTES)


@dataclass(frozen=True, slots=True)
class Member:
    name: str
    num_bytes: int
    chunks: Callable[[], Iterable[bytes | memoryview]]  # `num_bytes` in all


def tar_size(members: Sequence[Member]) -> int:
    padded = (-(-member.num_bytes // BLOCK_BYTES) * BLOCK_BYTES for member in members)
    return sum(padded) + sum(len(_header(member)) for member in members) + len(_END)


def tar_chunks(members: Iterable[Member]) -> Iterator[bytes]:
    """Yield the tar. Raises ValueError if a member's size is not as announced: the receiver then lacks the end."""
    for member in members:
        yield _header(member)
        num_left = member.num_bytes
        for chunk in member.chunks():
            num_left -= len(chunk)
            if num_left < 0:
                break
            yield bytes(chunk)
        if num_left != 0:
            raise ValueError(f"{member.name} is not the {member.num_bytes} bytes that were announced")
        yield b"\0" * (-member.num_bytes % BLOCK_BYTES)
    yield _END


def _header(member: Member) -> bytes:
    info = tarfile.TarInfo(member.name)
    info.size, info.mode = member.num_bytes, 0o644
    return info.tobuf(format=tarfile.PAX_FORMAT)
