"""Weights from a trainer's memory into an engine's: shared memory on one host, a broadcast over a network."""
