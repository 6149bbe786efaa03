"""The composition root: the command line and the local supervisor."""
