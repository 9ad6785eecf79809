"""Ranks that compute sequences together: each has a slice of the tokens, and in attention some of the heads."""
