"""Scheduling, pure: requests, snapshots and plans; what steps take; what policies decide."""
