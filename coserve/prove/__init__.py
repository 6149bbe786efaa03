"""`coserve prove`: what chat pays for a batch on this machine, measured by its clients."""
