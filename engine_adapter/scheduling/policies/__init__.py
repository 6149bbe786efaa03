"""Scheduling policies: pure functions of a snapshot and of what they have observed."""
