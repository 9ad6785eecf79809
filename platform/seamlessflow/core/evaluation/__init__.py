"""Measuring versions on held-out tasks."""
