"""When a process that ended by itself is started again: the policy is data.

The longest delay is five seconds, whatever a part's history: start (3 s), stale lease (6 s) and
sweep (3 s) still fit into the 30 s in which the service recovers from any `kill -9`.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class RestartPolicy:
    """Delays between starts grow from `first_delay_s` by `factor` up to `longest_delay_s`.

    A process that ran for `steady_s` is forgiven: its next delay is the first one again.
    The longest delay is a part of the 30 s in which the service recovers from any death, however
    often it died before.
    Before it was ever ready it gets `num_tries_at_start` starts, then the whole start fails:
    a wrong setting does not get better by waiting.
    """

    first_delay_s: float = 0.5
    factor: float = 2.0
    longest_delay_s: float = 5.0
    steady_s: float = 15.0
    num_tries_at_start: int = 3


class Backoff:
    """Where one process stands in its policy."""

    def __init__(self, policy: RestartPolicy) -> None:
        self._policy = policy
        self._next_s = policy.first_delay_s

    def next_delay_s(self, ran_s: float) -> float:
        """How long to wait after a run of `ran_s` seconds."""
        if ran_s >= self._policy.steady_s:
            self._next_s = self._policy.first_delay_s
        delay_s = self._next_s
        self._next_s = min(delay_s * self._policy.factor, self._policy.longest_delay_s)
        return delay_s
