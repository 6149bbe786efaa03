"""Plain ASGI middleware: what every request passes, at the price of one more function call."""
