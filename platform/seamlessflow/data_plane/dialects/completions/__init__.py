"""OpenAI's Completions: an answer to a text or to token ids, without a chat template."""
