"""What `coserve` does, one file per command."""
