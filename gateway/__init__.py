"""The online door: an OpenAI-compatible HTTP gateway."""
