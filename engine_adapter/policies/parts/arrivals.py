"""What online requests have been like: how long their prompts are, and how often one comes."""

from __future__ import annotations

import math

from engine_adapter.core.snapshot import Snapshot

HORIZON_S = 60.0


class OnlineArrivals:
    """Running means over online requests, for reserving room before the next one arrives.

    Args:
        initial_tokens: Prompt length assumed until a request has been seen.
        weight: Weight of the newest prompt once enough have been seen.
    """

    def __init__(self, initial_tokens: int, weight: float = 0.1) -> None:
        """Start from the assumption, and without arrivals."""
        self._mean = float(initial_tokens)
        self._weight = weight
        self._last_sequence = -1
        self._count = 0
        self._per_s = 0.0
        self._last_s: float | None = None

    def update(self, snapshot: Snapshot) -> None:
        """Take in the online rows that arrived since the last snapshot."""
        if self._last_s is not None:
            self._per_s *= math.exp(-max(0.0, snapshot.now_s - self._last_s) / HORIZON_S)
        self._last_s = snapshot.now_s
        newest = self._last_sequence
        for row in snapshot.online_waiting:
            if row.sequence > self._last_sequence:
                self._count += 1
                self._per_s += 1.0 / HORIZON_S
                weight = max(self._weight, 1.0 / self._count)
                self._mean += weight * (row.prompt_tokens - self._mean)
                newest = max(newest, row.sequence)
        self._last_sequence = newest

    @property
    def prompt_tokens(self) -> int:
        """Expected length of the next prompt."""
        return max(1, round(self._mean))

    @property
    def per_s(self) -> float:
        """Requests per second of late, the newest minute above all; 0 without any."""
        return self._per_s
