"""Phases and the reconcile loop that orders them."""
