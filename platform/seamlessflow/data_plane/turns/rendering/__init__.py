"""Turns chat messages into tokens and back: templates, incremental detokenising, tool calls and reasoning."""
