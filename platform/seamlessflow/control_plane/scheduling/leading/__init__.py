"""The process that leads the scheduling."""
