"""Published policy weights: safetensors shards, a manifest with checksums, and the transports that carry them."""
