"""What a file would come to."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from typing import Final

from batch.intake.quote import DOUBT, Contents, quote
from store.repositories.progress import ServiceReading

NOW: Final = datetime(2026, 11, 30, tzinfo=UTC)
FILE: Final = Contents(
    num_rows=100,
    num_distinct=60,
    num_bytes=50_000,
    prompt_tokens=8_000,
    shared_tokens=5_000,
    answer_limits=[(20, 50), (None, 50)],
)
BUSY: Final = ServiceReading(
    backlog_bytes=30_000, live_bytes_per_s=100.0, past_bytes_per_s=50.0, num_dispatchers=1
)


def test_all_is_known() -> None:
    found = quote(
        FILE, BUSY, now=NOW, mean_answer_tokens=30.0, price_of=lambda tokens: f"{tokens} c"
    )
    assert (found.rows, found.distinct_rows) == (100, 60)
    assert (found.prompt_tokens, found.shared_prompt_tokens) == (8_000, 5_000)
    assert found.answer_tokens == 50 * 20 + 50 * 30
    # Three fifths of the file go to an engine: alone, or after all that waits and with a doubt.
    assert found.finish_range is not None
    earliest, latest = (at - int(NOW.timestamp()) for at in found.finish_range)
    assert (earliest, latest) == (300, int(600 * (1 + DOUBT)))
    assert found.price == f"{3_000 + 2_500 * 0.6} c"


def test_nothing_is_known_yet() -> None:
    idle = replace(BUSY, live_bytes_per_s=None, past_bytes_per_s=None)
    found = quote(FILE, idle, now=NOW, mean_answer_tokens=None, price_of=str)
    assert (found.answer_tokens, found.finish_range, found.price) == (None, None, None)
