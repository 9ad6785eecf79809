"""Dialects: the APIs that agents speak, each an adapter into one internal request."""
