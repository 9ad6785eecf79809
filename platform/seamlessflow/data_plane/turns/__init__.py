"""The room of turns: sessions in memory, their trees, and how engines make an answer."""
