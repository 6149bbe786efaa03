"""The end of a batch: cancelled, expired or finalized, its files written, read and collected."""
