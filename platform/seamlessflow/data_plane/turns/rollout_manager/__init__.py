"""Keeps an answer growing across engines, updates and hand-overs."""
