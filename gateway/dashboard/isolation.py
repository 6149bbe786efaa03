"""Proof of isolation: what online requests get while offline work runs and while it does not."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from engine_adapter.client.pool import Member
from engine_adapter.scheduling.distribution import EDGES_S
from engine_adapter.scheduling.isolation import DEFAULT_EVERY_S, PAUSE_S
from gateway.dashboard import wording
from gateway.dashboard.drawing import steps
from gateway.dashboard.fragments import Fragments
from gateway.dashboard.resources import Resources
from gateway.dashboard.templating import render
from gateway.history.reading import CHART_SPANS, DEFAULT_SPAN, Latencies, Moment, read
from gateway.observability.latency_metrics import targets_of

SERIES: Final = ("beside:ttft", "beside:tbt", "apart:ttft", "apart:tbt")
ENOUGH: Final = 100
"""Two percentiles of fewer latencies are not compared."""
NAMES: Final = {"ttft": "Time to first token", "tbt": "Time between tokens"}


@dataclass(frozen=True)
class Side:
    """One of the two distributions.

    Attributes:
        path: Its outline, a place for each bucket in sight, 100 high.
    """

    label: str
    tone: str
    seen: Latencies
    path: str

    @property
    def quantiles(self) -> list[tuple[str, str]]:
        """P50, P90 and P99 in words."""
        found = [(f"P{p}", self.seen.quantile_s(p / 100)) for p in (50, 90, 99)]
        return [(name, "–" if one is None else wording.latency(one)) for name, one in found]


@dataclass(frozen=True)
class Comparison:
    """One latency, beside offline work and without.

    Attributes:
        first, last: The buckets in sight.
        target_s: None where no engine names one.
        seen_s: The part of the span in which anything was seen.
    """

    of: str
    sides: Sequence[Side]
    first: int
    last: int
    target_s: float | None
    seen_s: float

    @property
    def name(self) -> str:
        return NAMES[self.of]

    @property
    def num_buckets(self) -> int:
        """How many buckets are drawn: the width of the picture, in its own unit."""
        return self.last - self.first + 1

    @property
    def axis(self) -> list[str]:
        """Words under the picture, evenly spread from edge to edge."""
        places = [self.first + round(part * (self.num_buckets - 1) / 4) for part in range(5)]
        return [wording.latency(EDGES_S[min(at, len(EDGES_S) - 1)]) for at in dict.fromkeys(places)]

    @property
    def target_at(self) -> float | None:
        """Where the target stands, in buckets; none if it is out of sight."""
        if self.target_s is None:
            return None
        at = sum(edge_s <= self.target_s for edge_s in EDGES_S) - self.first
        return float(at) if 0 <= at <= self.num_buckets else None

    @property
    def verdict(self) -> str:
        """The comparison in a sentence."""
        beside, apart = (side.seen for side in self.sides)
        if min(beside.num, apart.num) < ENOUGH:
            return self._wanting
        one, other = beside.quantile_s(0.9), apart.quantile_s(0.9)
        if one is None or other is None:
            return ""
        change = round(100 * (one / other - 1))
        than = "more than" if change > 0 else "less than"
        words = f"{abs(change)} % {than}" if change else "the same as"
        return f"P90 beside batch work: {wording.latency(one)}, {words} without."

    @property
    def _wanting(self) -> str:
        """What is not seen often enough yet, and until when at the pace of this span."""
        fewest = min(self.sides, key=lambda side: side.seen.num)
        num = fewest.seen.num
        words = f"Not enough was seen yet: {fewest.label.lower()} {num} of {ENOUGH} that it takes"
        if not num or not self.seen_s:
            return f"{words}."
        left_s = self.seen_s * (ENOUGH / num - 1)
        return f"{words}, about {wording.duration(left_s)} more at this pace."


def compare(of: str, whole: Moment, target_s: float | None, seen_s: float = 0) -> Comparison:
    """The two distributions of a latency on one axis; each as shares of its own."""
    seen = [whole.of(f"{kind}:{of}") for kind in ("beside", "apart")]
    counts = [list(one.figures[3:]) or [0.0] * (len(EDGES_S) + 1) for one in seen]
    used = [at for at, pair in enumerate(zip(*counts, strict=True)) if any(pair)]
    first, last = max(0, min(used, default=10) - 2), min(len(EDGES_S), max(used, default=30) + 2)
    shares = [[count / max(1.0, sum(side)) for count in side[first : last + 1]] for side in counts]
    top = max(*shares[0], *shares[1], 0.01)
    labels = (("Beside batch work", "offline"), ("Without batch work", "online"))
    sides = [
        Side(label, tone, one, steps(part, top=top))
        for (label, tone), one, part in zip(labels, seen, shares, strict=True)
    ]
    return Comparison(of, sides, first, last, target_s, seen_s)


@dataclass(frozen=True)
class IsolationPage:
    """The comparison over a span, all engines together."""

    span: str = DEFAULT_SPAN

    @property
    def fresh_s(self) -> float:
        """See `LivingPage`: the history moves every ten seconds."""
        return 4.9

    async def read(self, resources: Resources) -> Fragments:
        span = CHART_SPANS[self.span]
        async with resources.readings.snapshot() as work:
            history = await read(work, span, SERIES)
        seen_s = len(history.moments) * span.step_s
        members = [one for one in resources.engine_pool.members if one.up]
        values: dict[str, Any] = {
            "span": span,
            "pauses": _pauses(members),
            "pause_s": PAUSE_S,
        }
        fragments = {"isolation-pauses": render("fragments/isolation_pauses.html", **values)}
        for place, of in enumerate(("ttft", "tbt")):
            targets = [target for m in members if (target := targets_of(m.facts)[place])]
            c = compare(of, history.whole, min(targets, default=None), seen_s)
            fragments[f"isolation-{of}"] = render("fragments/isolation.html", c=c, **values)
        return Fragments(whole=fragments)


def _pauses(members: Sequence[Member]) -> dict[str, Any]:
    """Pauses of all engines, added up; `on` if any engine makes them."""
    reports = [m.facts.reported("isolation.pauses") for m in members if m.facts is not None]
    known = [one for one in reports if isinstance(one, dict)]
    return {
        "known": bool(known),
        "on": any(one.get("on") for one in known),
        "num": sum(one.get("num", 0) for one in known),
        "paused_s": sum(one.get("paused_s", 0.0) for one in known),
        "over_s": sum(one.get("over_s", 0.0) for one in known),
        "every_s": min(
            (one.get("every_s", DEFAULT_EVERY_S) for one in known), default=DEFAULT_EVERY_S
        ),
    }
