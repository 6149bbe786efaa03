"""The latency that online requests got of late, to be shown beside their targets."""

from __future__ import annotations

from collections import deque
from typing import Any

from engine_adapter.scheduling.targets import Slo

NUM_KEPT = 1000


class AttainedLatency:
    """The newest times to first token and between tokens, as the engine gave them.

    A first token's time runs from the request's arrival at the engine. Times before and after the
    engine (network, tokenizer) are not in it.

    Args:
        num_kept: Values kept of each.
    """

    def __init__(self, num_kept: int = NUM_KEPT) -> None:
        self._ttft_s: deque[float] = deque(maxlen=num_kept)
        self._tbt_s: deque[float] = deque(maxlen=num_kept)

    def token(self, now_s: float, arrival_at_s: float, last_token_at_s: float | None) -> None:
        """An online request got a token; its last one came at ``last_token_at_s``, None: never."""
        if last_token_at_s is None:
            self._ttft_s.append(now_s - arrival_at_s)
        else:
            self._tbt_s.append(now_s - last_token_at_s)

    def to_plain(self, slo: Slo) -> dict[str, Any]:
        """Count, median, P90 and the share within the target, of both; empty without values."""
        kept = {"ttft": (self._ttft_s, slo.ttft_s), "tbt": (self._tbt_s, slo.tbt_s)}
        return {
            name: _summary(sorted(values), aim) for name, (values, aim) in kept.items() if values
        }


def _summary(ordered: list[float], target_s: float) -> dict[str, float]:
    last = len(ordered) - 1
    return {
        "num": len(ordered),
        "p50_s": ordered[round(0.5 * last)],
        "p90_s": ordered[round(0.9 * last)],
        "share_in_time": sum(value <= target_s for value in ordered) / len(ordered),
    }
