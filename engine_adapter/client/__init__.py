"""How gateway and batch talk to engines: one protocol, an HTTP client, a pool and a fake."""
