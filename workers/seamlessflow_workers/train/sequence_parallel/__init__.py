"""Ranks that share sequences: each holds a slice of the tokens, and in attention some of the heads."""
