"""What a trainer tells an engine that is to take part in a broadcast."""

import msgspec


class Seat(msgspec.Struct, frozen=True, tag="seat"):
    """The engine's place in a group that exists for one transfer, and what is broadcast in it."""

    rank: int  # 0 is the trainer
    num_ranks: int
    store_port: int
    group: str
    bucket_bytes: int
    shards: dict[str, int]  # bytes by name, broadcast in this order in buckets of at most `bucket_bytes`
