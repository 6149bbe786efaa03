"""Kernels that move KV pages between device and host."""
