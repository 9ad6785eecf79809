"""Published policy weights as files: safetensors shards and a manifest with checksums."""
