"""From finished rollout groups to packed, immutable training batches."""
