"""Chat messages to tokens and back: templates, incremental detokenising, tool calls and reasoning."""
