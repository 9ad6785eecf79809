"""The room of turns: sessions in memory, their trees, and how an answer comes about on engines."""
