"""Live sessions: their trees in memory, their turns on the way to the store."""
