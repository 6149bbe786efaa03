"""Webhooks: signed events of batches, delivered at least once to their owners' endpoints."""
