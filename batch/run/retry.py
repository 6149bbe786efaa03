"""Whether and when a failed attempt is repeated. Pure.

Repeated: engine loss, time-outs, 408, 409, 429 and 5xx. Never: any other 4xx, which would fail
alike. The pause doubles with each failure, with jitter over its upper half, so that rows which
failed together do not come back together.

An engine's 429 and 503 say that it takes nothing now, and nothing about the row: refusals are no
attempts. They have a count and a doubling of their own, and no bound but the batch's window.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

BASE_DELAY_S: Final = 0.5
MAX_DELAY_S: Final = 60.0
_RETRYABLE_BELOW_500: Final = frozenset({408, 409, 425, 429})


@dataclass(frozen=True, slots=True)
class Again:
    """Put the row back and claim it no sooner than `delay_s` from now."""

    delay_s: float


@dataclass(frozen=True, slots=True)
class GiveUp:
    """The error is final: it goes to the error file."""


def is_retryable(status_code: int) -> bool:
    """Whether the same request may succeed later."""
    return status_code >= 500 or status_code in _RETRYABLE_BELOW_500


def backoff_s(num_before: int, jitter: float) -> float:
    """How long to wait after a failure.

    Args:
        num_before: Failures of its sort before it, from 0.
        jitter: Uniform in [0, 1).

    Returns:
        Between half of and the whole of `BASE_DELAY_S * 2 ** num_before`, at most `MAX_DELAY_S`.
    """
    whole_s = min(MAX_DELAY_S, BASE_DELAY_S * 2.0 ** min(num_before, 32))
    return whole_s * (0.5 + 0.5 * jitter)


def after_failure(
    status_code: int, attempt: int, *, max_attempts: int, jitter: float
) -> Again | GiveUp:
    """What becomes of a row whose attempt failed otherwise than by a refusal.

    Args:
        status_code: Of the engine's answer; 503 where it gave none.
        attempt: Counted attempts before this one, from 0.
        max_attempts: How many there may be.
        jitter: Uniform in [0, 1).
    """
    if not is_retryable(status_code) or attempt + 1 >= max_attempts:
        return GiveUp()
    return Again(backoff_s(attempt, jitter))
