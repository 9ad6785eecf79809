"""The supervisor: one process per machine that owns every other process there. It never imports torch."""
