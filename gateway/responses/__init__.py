"""The Responses resource: answers with typed items, made by chat calls."""
