"""How long a step takes: model, fit, profile and drift."""
