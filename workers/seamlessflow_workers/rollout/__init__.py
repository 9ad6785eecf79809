"""Rollout: engines, and the front before each of them."""
