"""OpenAI's Responses, without stored responses."""
