"""Processes that train as one: the ranks of one machine, and gangs of several machines."""
