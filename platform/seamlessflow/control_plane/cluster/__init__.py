"""Machines, their tags, their heartbeats and the worker protocol."""
