"""Copies of an emulated engine take the link's time and still move what they moved."""

from __future__ import annotations

from typing import Any

import pytest

from lab.emulated.charged_pool import ChargedPool
from lab.emulated.timeline import Timeline


class Pool:
    """Notes what it is asked for."""

    page_bytes = 1024
    ledger = object()

    def __init__(self) -> None:
        self.asked: list[Any] = []

    def store(self, slots: Any, pages: list[int]) -> None:
        self.asked.append(("store", slots, pages))

    def load(self, slots: Any, pages: list[int], first_token: int = 0) -> None:
        self.asked.append(("load", slots, pages, first_token))


def test_copies_are_charged_at_the_size_of_the_real_models_pages_and_then_made() -> None:
    timeline = Timeline(lambda: 0.0, lambda _seconds: None, link_bytes_per_s=1e9)
    pool = Pool()
    charged = ChargedPool(pool, timeline, page_bytes=2_000_000)
    charged.store("slots", [4, 5])
    charged.load("others", [6], 3)
    assert timeline.counts.copies_s == pytest.approx(0.006)
    assert pool.asked == [("store", "slots", [4, 5]), ("load", "others", [6], 3)]
    assert charged.page_bytes == 2_000_000
    assert charged.ledger is pool.ledger
