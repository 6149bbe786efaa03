"""The page of a run: one HTML file that needs nothing else. Programs read the JSON."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from jinja2 import Environment, FileSystemLoader, StrictUndefined

from coserve.prove.findings import NAMES

COLOURS: Final = {"alone": "#7d8590", "beside": "#1a7f5a", "stock": "#c4701b"}
WIDTH, HEIGHT, MARGIN = 720, 260, 44
FOLDER: Final = Path(__file__).parent


def render(report: Mapping[str, Any], ttfts_s: Mapping[str, Sequence[float]]) -> str:
    """The page.

    Args:
        report: What the JSON file holds.
        ttfts_s: First tokens of each system, for the picture.
    """
    loader = FileSystemLoader(FOLDER)
    templates = Environment(loader=loader, autoescape=True, undefined=StrictUndefined)
    return templates.get_template("page.html").render(
        report=report,
        names=NAMES,
        colours=COLOURS,
        curves=curves(ttfts_s),
        ticks=ticks(ttfts_s),
        width=WIDTH,
        height=HEIGHT,
        margin=MARGIN,
    )


def _span(ttfts_s: Mapping[str, Sequence[float]]) -> tuple[float, float]:
    """Decimal logarithms of the first and last instant of the picture."""
    every = [max(one, 1e-4) for values in ttfts_s.values() for one in values]
    low, high = math.log10(min(every, default=0.1)), math.log10(max(every, default=1.0))
    return low, max(high, low + 0.1)


def _across(seconds: float, span: tuple[float, float]) -> float:
    share = (math.log10(max(seconds, 1e-4)) - span[0]) / (span[1] - span[0])
    return MARGIN + (WIDTH - 2 * MARGIN) * share


def curves(ttfts_s: Mapping[str, Sequence[float]]) -> dict[str, str]:
    """Share of first tokens that had come, over time on a logarithmic scale, as SVG's points."""
    span = _span(ttfts_s)
    found: dict[str, str] = {}
    for name, values in ttfts_s.items():
        ordered = sorted(values)
        points = [
            f"{_across(one, span):.1f},{_up((rank + 1) / len(ordered)):.1f}"
            for rank, one in enumerate(ordered)
        ]
        found[name] = " ".join(points)
    return found


def _up(share: float) -> float:
    return HEIGHT - MARGIN - (HEIGHT - 2 * MARGIN) * share


def ticks(ttfts_s: Mapping[str, Sequence[float]]) -> list[tuple[float, str]]:
    """Where the scale of time is marked: at 1, 2 and 5 of each power of ten."""
    span = _span(ttfts_s)
    marks = [step * 10.0**power for power in range(-4, 4) for step in (1, 2, 5)]
    inside = [one for one in marks if span[0] <= math.log10(one) <= span[1]]
    return [(_across(one, span), f"{1000 * one:,.0f} ms") for one in inside]
