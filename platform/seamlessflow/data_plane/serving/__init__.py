"""Turns from a request to its answer, without HTTP: parse, plan, grow, commit, answer."""
