"""On one host: the trainer hands its sealed memory over, shard by shard, without copying it."""
