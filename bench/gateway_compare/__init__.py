"""The gateway beside a plain relay and beside LiteLLM's proxy, before one fake engine."""
