"""Parsers of a model's text: reasoning, tool calls and content, incrementally; one module per call format."""
