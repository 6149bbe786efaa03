"""How gateway and batch talk to engines: one protocol, an HTTP client and a pool."""
