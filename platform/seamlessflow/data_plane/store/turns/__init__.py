"""Rows of sessions, of nodes and of held time."""
