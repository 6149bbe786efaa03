"""`coserve batch`: a file per thing that is done to batches."""
