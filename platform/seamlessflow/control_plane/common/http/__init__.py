"""Requests and responses: which bodies are accepted, how lists are paged, how errors are reported."""
