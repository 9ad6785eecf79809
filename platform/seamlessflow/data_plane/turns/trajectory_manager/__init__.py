"""Live sessions: their trees in memory, and their turns from plan to commit."""
