"""Benchmarks of the service side: what `make bench` measures."""
