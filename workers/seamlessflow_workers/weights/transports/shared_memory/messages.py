"""What a trainer says while it hands its sealed memory over."""

import msgspec


class Handed(msgspec.Struct, frozen=True, tag="handed"):
    """The descriptor of this shard comes along; one message a shard, then the end of the connection."""

    shard: str
