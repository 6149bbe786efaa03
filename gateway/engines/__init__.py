"""The engines the gateway knows: registered, discovered, and what they report."""
