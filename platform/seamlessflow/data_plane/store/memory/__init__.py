"""Twins of the store that keep everything in memory, for tests of the rooms. No process uses them."""
