"""The room of batches: which groups train next, and the bytes that a trainer gets."""
