"""The HTTP side of the gateway: the app, the server, connections, middleware."""
