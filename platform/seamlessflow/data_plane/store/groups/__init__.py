"""Rows of groups: admission, epochs of tasks, finalization, evaluations, silence."""
