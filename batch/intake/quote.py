"""What a file would come to as a batch: a quote before it runs. Pure.

Answers are expected to be as long as those of the project's last batches of the same model and
endpoint, and the time is that of the service's present speed, or that of recent batches.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

from api.batch_shapes import BatchQuote
from store.repositories.progress import ServiceReading

DOUBT: Final = 0.4
"""Shares of the time by which it may last longer than at the present speed."""


@dataclass(frozen=True, slots=True)
class Contents:
    """What is counted in a faultless file.

    Attributes:
        num_rows: Requests.
        num_distinct: Those that an engine is asked.
        num_bytes: Of the file.
        prompt_tokens: Of all prompts, about.
        shared_tokens: Of those, the beginnings that an earlier row's prompt has too, at least.
        answer_limits: Most tokens of an answer, None where that is left open; of how many rows.
    """

    num_rows: int
    num_distinct: int
    num_bytes: int
    prompt_tokens: int
    shared_tokens: int
    answer_limits: Sequence[tuple[int | None, int]]

    def answer_tokens(self, mean: float) -> int:
        """Tokens of all answers where one has `mean` of them unless its limit is below."""
        return round(
            sum(
                (mean if most is None else min(most, mean)) * num
                for most, num in self.answer_limits
            )
        )


def quote(
    contents: Contents,
    service: ServiceReading,
    *,
    now: datetime,
    mean_answer_tokens: float | None,
    price_of: Callable[[float], str] | None,
) -> BatchQuote:
    """Say what a file would come to.

    Args:
        contents: What is in it.
        service: How the service gets on.
        now: The database's clock.
        mean_answer_tokens: Of a row, in the project's last batches; None where it had none.
        price_of: What tokens that are computed are worth; None where no price is set.
    """
    num_answer = price = None
    if mean_answer_tokens is not None:
        num_answer = contents.answer_tokens(mean_answer_tokens)
    distinct = contents.num_distinct / contents.num_rows
    if num_answer is not None and price_of is not None:
        price = price_of(contents.prompt_tokens - contents.shared_tokens + num_answer * distinct)
    return BatchQuote(
        rows=contents.num_rows,
        distinct_rows=contents.num_distinct,
        prompt_tokens=contents.prompt_tokens,
        shared_prompt_tokens=contents.shared_tokens,
        answer_tokens=num_answer,
        price=price,
        finish_range=_range(contents.num_bytes * distinct, service, now),
    )


def _range(num_bytes: float, service: ServiceReading, now: datetime) -> tuple[int, int] | None:
    """From where its rows run at once, until where all that is live runs before them."""
    speed = service.live_bytes_per_s or service.past_bytes_per_s
    if not speed:
        return None
    earliest_s = num_bytes / speed
    latest_s = (service.backlog_bytes + num_bytes) / speed * (1 + DOUBT)
    earliest, latest = (
        int((now + timedelta(seconds=seconds)).timestamp()) for seconds in (earliest_s, latest_s)
    )
    return earliest, latest
