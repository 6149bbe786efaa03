"""Policies of papers and of other engines, to compare with."""
