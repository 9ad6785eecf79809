"""Engines as the gateway sees them: the engine table, the client of their protocol, and the watch over them."""
