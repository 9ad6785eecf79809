"""Errors, events, artifacts and helpers that every app uses."""
