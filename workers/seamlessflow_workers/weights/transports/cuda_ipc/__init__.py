"""On one card: shards pass through a bucket of memory that trainer and engine share."""
