"""Reward functions: they grade the final answer of a session."""
