"""Processes that train as one: the ranks of one machine, and the gangs of several machines."""
