"""Attention over flat trees: which blocks a tree needs, how they are computed, and which models support it."""
