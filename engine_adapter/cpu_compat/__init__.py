"""What SGLang needs on a host without CUDA; linked into the engine's environment only there."""
