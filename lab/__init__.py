"""Research beside the product: simulator, baselines, workloads, an emulated device."""
