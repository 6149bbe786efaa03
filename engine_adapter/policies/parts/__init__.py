"""Pieces the policies are made of."""
