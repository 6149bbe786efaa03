"""Usage of an organisation, in the shape of OpenAI's usage API: one bucket per day, UTC."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta
from itertools import groupby
from typing import Any, Final

from store.repositories.usage import UsageCount, UsageLine

COLUMNS: Final[Mapping[str, tuple[str, ...]]] = {
    "project_id": ("project_id",),
    "api_key_id": ("key_id",),
    "model": ("model",),
    "batch": ("request_class",),
    "service_tier": ("request_class",),
}
"""What a usage report may be grouped by, and the columns that takes."""

TIER_OF: Final = {"online": "default", "flex": "flex", "offline": "batch"}


@dataclass(frozen=True)
class Span:
    """Whole days from `since` up to but without `until`."""

    since: date
    until: date

    @classmethod
    def of(cls, start_s: int, end_s: int | None, *, now: datetime) -> Span:
        """The days that touch an interval; without an end, today included."""
        end = now if end_s is None else datetime.fromtimestamp(max(end_s - 1, 0), UTC)
        return cls(datetime.fromtimestamp(start_s, UTC).date(), end.date() + timedelta(days=1))

    def first(self, days: int) -> Span:
        """At most so many days of it."""
        return Span(self.since, min(self.until, self.since + timedelta(days=days)))

    def days(self) -> Sequence[date]:
        num = max(0, (self.until - self.since).days)
        return [self.since + timedelta(days=n) for n in range(num)]


def columns_of(group_by: Sequence[str]) -> tuple[str, ...]:
    """The database's columns behind the words of a request."""
    return tuple(dict.fromkeys(column for word in group_by for column in COLUMNS[word]))


def buckets(
    span: Span, lines: Sequence[UsageLine], group_by: Sequence[str]
) -> list[dict[str, Any]]:
    """Every day of a span, those without usage too.

    Args:
        span: Which days.
        lines: Grouped by day and by `columns_of(group_by)`, in the order of the days.
        group_by: Words of `COLUMNS`.
    """
    of_day = {day: list(found) for day, found in groupby(lines, key=lambda line: line.day)}
    return [
        {
            "object": "bucket",
            "start_time": unix_of(day),
            "end_time": unix_of(day + timedelta(days=1)),
            "results": _results(of_day.get(day, []), group_by),
        }
        for day in span.days()
    ]


def unix_of(day: date) -> int:
    """The first second of a day, UTC."""
    return int(datetime.combine(day, time(), UTC).timestamp())


def _results(lines: Sequence[UsageLine], group_by: Sequence[str]) -> list[dict[str, Any]]:
    # Two classes may share a value of `batch`: online and flex are both no batch.
    sums: dict[tuple[Any, ...], UsageCount] = {}
    for line in lines:
        labels = tuple(_label(word, line.group) for word in group_by)
        sums[labels] = sums.get(labels, UsageCount()) + line.count
    return [
        {
            "object": "organization.usage.completions.result",
            "input_tokens": count.prompt_tokens,
            "input_cached_tokens": count.cached_tokens,
            "output_tokens": count.completion_tokens,
            "num_model_requests": count.num_requests,
            **dict.fromkeys((*COLUMNS, "user_id")),
            **dict(zip(group_by, labels, strict=True)),
        }
        for labels, count in sums.items()
    ]


def _label(word: str, group: Mapping[str, str]) -> str | bool | None:
    match word:
        case "batch":
            return group["request_class"] == "offline"
        case "service_tier":
            return TIER_OF[group["request_class"]]
        case "api_key_id":
            return group["key_id"] or None
        case _:
            return group[word]
