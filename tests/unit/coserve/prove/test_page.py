"""The page of a run holds its figures, and nothing that it is told is markup."""

from __future__ import annotations

import re

from coserve.prove.findings import ALONE, BESIDE, figures
from coserve.prove.page import curves, render, ticks
from tests.unit.coserve.prove.test_findings import taken

TTFTS = {ALONE: [0.05, 0.1, 0.2], BESIDE: [0.06, 0.5]}


def test_the_page_shows_figures_claims_and_refusals() -> None:
    alone, beside = taken(300, 0.1), taken(300, 0.2, tokens=99_000)
    report = {
        "at": "2026-11-29T06:00:00+00:00",
        "model": {"id": "<b>model</b>", "coserving_level": 3},
        "chats_per_s": 1.5,
        "seconds_each": 300.0,
        "systems": {ALONE: figures(alone, alone), BESIDE: figures(beside, alone)},
        "claims": ["First tokens, P50: 2.00 times."],
        "refused": ["Nothing is claimed about P99."],
        "remarks": [],
        "machine": {"cpu": "Xeon", "cores": 2, "memory_gib": 24.0, "gpus": []},
        "versions": {"coserve": "0.2.0"},
    }
    page = render(report, {ALONE: alone.ttfts_s, BESIDE: beside.ttfts_s})
    assert "&lt;b&gt;model&lt;/b&gt;" in page
    assert "<b>model" not in page
    for word in ("2.00 times", "about P99", "9,900", "Xeon", "0.2.0"):
        assert word in page
    assert not re.search(r"(?:src|href)=", page), "it needs nothing else"


def test_curves_rise_to_the_whole() -> None:
    for points in curves(TTFTS).values():
        ups = [float(point.split(",")[1]) for point in points.split()]
        assert ups == sorted(ups, reverse=True)
        assert ups[-1] == 44.0


def test_the_scale_is_marked_inside_the_picture() -> None:
    assert [word for _, word in ticks(TTFTS)] == ["50 ms", "100 ms", "200 ms", "500 ms"]
