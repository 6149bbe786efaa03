"""OpenAI shapes and the request fields that carry class, deadline and request id."""
