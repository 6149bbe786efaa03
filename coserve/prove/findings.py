"""From what clients saw to figures, and to what may be claimed from so many of them.

| a claim about | needs chats of each system |
| --- | --- |
| medians | 30 |
| P90 | 100 |
| P99, and the share in time | 300 |

*In time* is a first token within 1.25 times the P99 of chat alone.
"""

from __future__ import annotations

import math
import random
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Final

from coserve.prove.clients import Seen
from service.percentiles import MIN_N_FOR_P99, Distribution, attained, percentile

ALONE, BESIDE, STOCK = "alone", "beside", "stock"
NAMES: Final = {
    ALONE: "chat alone",
    BESIDE: "chat with a batch by coserve",
    STOCK: "chat with as many requests as fit, without coserve",
}
NEEDED: Final = {0.5: 30, 0.9: 100, 0.99: MIN_N_FOR_P99}
"""Percentile -> how many chats a claim about it needs."""

IN_TIME: Final = 1.25
RESAMPLES: Final = 1000


@dataclass(slots=True)
class Taken:
    """What one system did, over all of its phases.

    Attributes:
        seen: Its chats.
        seconds: Length of its phases.
        batch_tokens: Of prompts and answers, of the rows answered in them.
    """

    seen: list[Seen] = field(default_factory=list)
    seconds: float = 0.0
    batch_tokens: int = 0

    @property
    def ttfts_s(self) -> list[float]:
        return [one.ttft_s for one in self.seen if one.ttft_s is not None]

    @property
    def gaps_s(self) -> list[float]:
        return [gap for one in self.seen for gap in one.gaps_s]

    def num_failed(self) -> int:
        return sum(one.ttft_s is None or bool(one.error) for one in self.seen)


def figures(taken: Taken, alone: Taken) -> dict[str, Any]:
    """One system's figures: milliseconds, shares, and tokens per second."""
    ttft, gaps = Distribution.of(taken.ttfts_s), Distribution.of(taken.gaps_s)
    # A chat without an answer was not in time.
    waits = [math.inf if one.ttft_s is None else one.ttft_s for one in taken.seen]
    enough = min(len(waits), len(alone.ttfts_s)) >= NEEDED[0.99]
    target_s = IN_TIME * percentile(alone.ttfts_s, 0.99) if enough else None
    return {
        "chats": len(taken.seen),
        "failed": taken.num_failed(),
        "ttft_ms": _ms(ttft),
        "gap_ms": _ms(gaps),
        "in_time": None if target_s is None else attained(waits, target_s),
        "batch_tokens_per_s": taken.batch_tokens / taken.seconds if taken.seconds else 0.0,
        "seconds": taken.seconds,
    }


def _ms(found: Distribution | None) -> dict[str, float | None] | None:
    if found is None:
        return None
    values = {name: value for name, value in asdict(found).items() if name != "n"}
    return {name: None if value is None else 1000 * value for name, value in values.items()}


@dataclass(frozen=True)
class Claims:
    """What may be said, in sentences, and what may not.

    Attributes:
        made: One sentence each.
        refused: Why there is none, or not all.
    """

    made: list[str]
    refused: list[str]


def claims(systems: Mapping[str, Taken], rate_per_s: float) -> Claims:
    """Compare each system with chat alone, as far as there are chats enough."""
    alone = systems[ALONE]
    made: list[str] = []
    refused: list[str] = []
    least = min((len(one.ttfts_s) for one in systems.values()), default=0)
    for share, needed in NEEDED.items():
        if least < needed:
            minutes = math.ceil(needed * 1.1 / rate_per_s * len(systems) / 60)
            refused.append(
                f"Nothing is claimed about P{100 * share:.0f}: {least} chats were answered of each "
                f"system, and {needed} are needed. Give --minutes {minutes}."
            )
            break
        for name, one in systems.items():
            if name != ALONE:
                made.append(_compared(name, one.ttfts_s, alone.ttfts_s, share))
    for name, one in systems.items():
        if one.num_failed():
            refused.append(f"{one.num_failed()} of {len(one.seen)} chats failed: {NAMES[name]}.")
    return Claims(made, refused)


def _compared(name: str, ours: Sequence[float], alone: Sequence[float], share: float) -> str:
    mine, other = percentile(ours, share), percentile(alone, share)
    low, high = ratio_interval(ours, alone, share)
    return (
        f"First tokens, P{100 * share:.0f}, {NAMES[name]}: {1000 * mine:,.0f} ms, "
        f"{mine / other:.2f} times chat alone's {1000 * other:,.0f} ms "
        f"(95 % interval {low:.2f} to {high:.2f})."
    )


def ratio_interval(
    ours: Sequence[float], alone: Sequence[float], share: float
) -> tuple[float, float]:
    """Bootstrap 95 % interval of the ratio of a percentile; the same numbers each time."""
    draw = random.Random(0)
    ratios = sorted(
        percentile(draw.choices(ours, k=len(ours)), share)
        / percentile(draw.choices(alone, k=len(alone)), share)
        for _ in range(RESAMPLES)
    )
    return percentile(ratios, 0.025), percentile(ratios, 0.975)
