"""Rows of sessions and nodes, and of the time that turns were held."""
