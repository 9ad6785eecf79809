"""Guided decoding: what an answer may be, and which tokens it may continue with."""
