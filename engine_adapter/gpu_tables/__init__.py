"""Step times of GPUs from measured kernels."""
