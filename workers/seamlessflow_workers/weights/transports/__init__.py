"""The ways from a trainer to engines: one folder each, both halves side by side; `table` lists them."""
