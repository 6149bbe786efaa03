"""From pending rows to results: claimed, sent to an engine, repeated, written."""
