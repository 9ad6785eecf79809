"""On one GPU: shards pass through a bucket of memory that trainer and engine share."""
