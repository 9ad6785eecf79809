"""Metric points, ledger intervals and logs."""
