"""Requests and responses: what bodies may be, how lists are paged, how errors are told."""
