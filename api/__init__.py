"""The OpenAI contract: shapes, rules, errors and streams. Imports nothing of ours."""
