"""The `seamlessflow` command."""
