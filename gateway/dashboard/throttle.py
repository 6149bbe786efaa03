"""Slowing down those who guess at the login form.

Keys have 256 random bits, so guessing is hopeless anyway; this keeps it from costing anything and
from filling the log. Counted per client address and per process.
"""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass

FREE_ATTEMPTS = 5
FIRST_WAIT_S = 2.0
MAX_WAIT_S = 300.0
MAX_ADDRESSES = 10_000


@dataclass
class _Failures:
    count: int
    blocked_until_s: float


class LoginThrottle:
    """Failed logins per address.

    Invariant: after `FREE_ATTEMPTS` failures each further one doubles the wait, up to
    `MAX_WAIT_S`; a success forgets them; at most `MAX_ADDRESSES` are remembered.
    """

    def __init__(self) -> None:
        self._failures: OrderedDict[str, _Failures] = OrderedDict()

    def wait_s(self, address: str, now_s: float) -> float:
        """How long this address must wait before its next attempt; 0 if it may try now."""
        known = self._failures.get(address)
        return max(0.0, known.blocked_until_s - now_s) if known else 0.0

    def failed(self, address: str, now_s: float) -> None:
        known = self._failures.setdefault(address, _Failures(0, now_s))
        known.count += 1
        extra = known.count - FREE_ATTEMPTS
        if extra >= 0:
            # The exponent is bounded, so that a patient guesser cannot make it overflow.
            known.blocked_until_s = now_s + min(MAX_WAIT_S, FIRST_WAIT_S * 2.0 ** min(extra, 16))
        self._failures.move_to_end(address)
        while len(self._failures) > MAX_ADDRESSES:
            self._failures.popitem(last=False)

    def succeeded(self, address: str) -> None:
        self._failures.pop(address, None)
