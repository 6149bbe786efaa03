"""What online requests get: of late, and with offline work beside them or without.

A latency is *beside* offline work if a step with offline requests ended after it had begun, else
*apart*. Load differs between the two: offline work runs where little else does. So while both kinds
are live, offline requests are left out of all steps for a second now and then, and what the same
online requests get then is the other half of the comparison.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field, replace
from typing import Any, Final

from engine_adapter.scheduling.distribution import Distribution
from engine_adapter.scheduling.request import Phase, pages_for
from engine_adapter.scheduling.snapshot import DecodeReady, Snapshot
from engine_adapter.scheduling.targets import Slo

PAUSE_S: Final = 1.0
DEFAULT_SHARE: Final = 0.002
"""Of the time, at most."""
DEFAULT_EVERY_S: Final = PAUSE_S / DEFAULT_SHARE
MAX_SHARE: Final = 0.2
SPARE_SHARE: Final = 0.1
"""Of the KV pool: with less to spare, online requests may need what parked requests hold."""


@dataclass(frozen=True, slots=True)
class Tokens:
    """The tokens that online requests got of one step.

    Attributes:
        at_s: When they got them.
        arrived_at_s: Of those whose first token it was: their arrivals.
        last_at_s: Of the others: when they got the token before.
    """

    at_s: float
    arrived_at_s: list[float] = field(default_factory=list)
    last_at_s: list[float] = field(default_factory=list)


# --- The latency that online requests got of late, to be shown beside their targets.


NUM_KEPT: Final = 1000


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

    def tokens(self, got: Tokens) -> None:
        """Take in what a step gave."""
        self._ttft_s.extend([got.at_s - since_s for since_s in got.arrived_at_s])
        self._tbt_s.extend([got.at_s - since_s for since_s in got.last_at_s])

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


# --- With offline work beside them, and without.


class Isolation:
    """The two distributions of each latency since the engine started.

    Attributes:
        ttft: Beside offline work, and apart from it.
        tbt: Likewise.
    """

    def __init__(self) -> None:
        self.ttft = (Distribution(), Distribution())
        self.tbt = (Distribution(), Distribution())
        self._offline_until_s = float("-inf")

    def offline_ran(self, until_s: float) -> None:
        """A step with offline requests ended at that instant."""
        self._offline_until_s = until_s

    def tokens(self, got: Tokens, slo: Slo) -> None:
        """Take in what a step gave."""
        for kind, began_s, target_s in (
            (self.ttft, got.arrived_at_s, slo.ttft_s),
            (self.tbt, got.last_at_s, slo.tbt_s),
        ):
            if began_s:
                until_s = self._offline_until_s
                beside, apart = kind
                beside.add_all([got.at_s - at_s for at_s in began_s if at_s < until_s], target_s)
                apart.add_all([got.at_s - at_s for at_s in began_s if at_s >= until_s], target_s)

    def to_plain(self) -> dict[str, Any]:
        return {
            name: {"beside": beside.figures(), "apart": apart.figures()}
            for name, (beside, apart) in (("ttft", self.ttft), ("tbt", self.tbt))
        }


class Pauses:
    """When offline requests are left out so that the comparison is fair.

    Args:
        on: Whether they ever are.
        share: Of the time, at most. A pause lasts until a step ends, so the next one waits for as
            long as the last one really took.

    Attributes:
        every_s: Between the beginnings of two, at least.
        num: Pauses begun.
        paused_s: Their time, added up.
    """

    def __init__(self, *, on: bool, share: float = DEFAULT_SHARE) -> None:
        self.on = on
        self._share = share
        self.every_s = PAUSE_S / share
        self.num = 0
        self.paused_s = 0.0
        self._began_s: float | None = None
        self._next_s = float("inf")
        self._first_s: float | None = None
        self._seen_s = 0.0

    def apply(self, snapshot: Snapshot) -> Snapshot:
        """The snapshot as the policy is shown it: without offline work during a pause."""
        if not self.on or not self._is_pause(snapshot):
            return snapshot
        page_tokens = snapshot.resources.page_tokens
        return replace(
            snapshot,
            offline_running=(),
            offline_waiting=(),
            offline_ready=DecodeReady([], page_tokens),
        )

    def _is_pause(self, snapshot: Snapshot) -> bool:
        now_s = snapshot.now_s
        since_s, self._seen_s = self._seen_s, now_s
        if self._first_s is None:
            self._first_s, self._next_s = now_s, now_s + self.every_s
        if self._began_s is not None:
            self.paused_s += now_s - since_s
            took_s = now_s - self._began_s
            if took_s < PAUSE_S and _costs_nobody(snapshot):
                return True
            self._next_s = self._began_s + max(PAUSE_S, took_s) / self._share
            self._began_s = None
            return False
        wanted = snapshot.offline_ready.requests and snapshot.online_ready.requests
        if now_s < self._next_s or not wanted or not _costs_nobody(snapshot):
            return False
        self._began_s = now_s
        self.num += 1
        return True

    def to_plain(self) -> dict[str, Any]:
        """Numbers alone; ``over_s`` is the time in which the pauses were made."""
        return {
            "on": self.on,
            "num": self.num,
            "paused_s": self.paused_s,
            "every_s": self.every_s,
            "over_s": 0.0 if self._first_s is None else self._seen_s - self._first_s,
        }


def _costs_nobody(snapshot: Snapshot) -> bool:
    """Online requests have slots and pages, without taking any from parked requests."""
    resources = snapshot.resources
    waiting = snapshot.online_waiting
    if not snapshot.online_running and not waiting:
        return False
    if len(waiting) > resources.free_slots:
        return False
    if any(request.phase is Phase.RETRACTED for request in waiting):
        return False
    if any(request.phase is Phase.RESTORING for request in snapshot.online_running):
        return False
    wanted = sum(
        pages_for(max(0, request.fill_tokens - request.computed_tokens), resources.page_tokens)
        for request in (*waiting, *snapshot.online_running)
    )
    spare = resources.available_pages - wanted
    return spare >= SPARE_SHARE * resources.total_pages
