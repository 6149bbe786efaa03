"""Steps that make a clean checkout ready; standard library only, run by the host's Python."""
