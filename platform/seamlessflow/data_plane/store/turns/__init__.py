"""Rows of sessions and nodes, of engines, and of the time that turns were held."""
