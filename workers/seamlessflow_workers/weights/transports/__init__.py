"""The ways from a trainer to engines, each with both halves side by side; `table` lists them."""
