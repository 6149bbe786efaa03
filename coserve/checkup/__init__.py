"""What `coserve doctor` examines: machine, GPU and service, each fault with its fix."""
