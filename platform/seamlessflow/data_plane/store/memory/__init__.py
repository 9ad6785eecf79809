"""In-memory twins of the store, for tests of the rooms. No process uses them."""
