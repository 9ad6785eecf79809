"""Rows of groups: admission, tasks and epochs, outcomes, evaluations, silence."""
