"""Thousands of one-line batches of one tenant, and what another tenant sees of them."""
