"""Routes: one module per noun, each with a `router` that the app mounts with and without `/v1`."""
