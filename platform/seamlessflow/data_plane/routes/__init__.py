"""HTTP surface: one module per kind of client."""
