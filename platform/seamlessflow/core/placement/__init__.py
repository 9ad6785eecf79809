"""Which gateway serves what: sessions and jobs by hash, slots of engines by demand."""
