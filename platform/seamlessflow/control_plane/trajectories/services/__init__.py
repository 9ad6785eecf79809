"""Writes of this app: each changes rows and leaves its event in one transaction."""
