"""Evaluating policy versions on held-out tasks."""
