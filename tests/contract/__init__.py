"""Contracts that each implementation of one interface passes."""
