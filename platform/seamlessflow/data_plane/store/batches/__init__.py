"""Rows of batches and of offline datasets, and what sampling a batch cost."""
