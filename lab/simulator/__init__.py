"""An engine in memory: the execution port without a GPU, a model or a clock."""
