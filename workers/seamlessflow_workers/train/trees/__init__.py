"""Attention over flat trees: which blocks a tree needs, how they are computed, which models can take them."""
