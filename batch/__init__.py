"""The offline door: one file per stage of a batch's life."""
