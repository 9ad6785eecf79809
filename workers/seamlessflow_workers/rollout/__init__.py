"""Rollout: the engine and the front before it."""
