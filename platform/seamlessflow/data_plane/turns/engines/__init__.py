"""Engines as the gateway sees them: the table of routable fronts and the client of their protocol."""
