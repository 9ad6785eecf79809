"""Warm processes as children of a supervisor, one module for each way of talking to them."""
