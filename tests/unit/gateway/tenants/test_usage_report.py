"""Usage buckets: every day once, classes folded as asked."""

from __future__ import annotations

from datetime import UTC, date, datetime

from gateway.tenants.usage_report import Span, buckets, columns_of, unix_of
from store.repositories.usage import UsageCount, UsageLine

DAY = date(2026, 11, 21)
NOW = datetime(2026, 11, 21, 15, 30, tzinfo=UTC)


def test_a_span_is_the_days_that_an_interval_touches() -> None:
    assert Span.of(unix_of(DAY), None, now=NOW).days() == [DAY]
    assert Span.of(unix_of(DAY) - 1, None, now=NOW).days() == [date(2026, 11, 20), DAY]
    # The end is not part of the interval.
    assert Span.of(unix_of(DAY) - 86_400, unix_of(DAY), now=NOW).days() == [date(2026, 11, 20)]
    assert Span.of(unix_of(DAY), unix_of(DAY) + 1, now=NOW).days() == [DAY]
    assert Span.of(unix_of(DAY), 0, now=NOW).days() == []
    assert len(Span.of(0, None, now=NOW).first(7).days()) == 7


def test_days_without_usage_are_there_and_empty() -> None:
    lines = [UsageLine(DAY, {}, UsageCount(1, 2, 1, 3))]
    made = buckets(Span(date(2026, 11, 20), date(2026, 11, 22)), lines, [])
    assert made[0]["results"] == []
    assert [one["end_time"] - one["start_time"] for one in made] == [86_400, 86_400]
    (result,) = made[1]["results"]
    assert result["input_tokens"] == 2
    assert result["output_tokens"] == 3
    assert result["num_model_requests"] == 1
    assert result["model"] is None


def test_online_and_flex_are_one_when_asked_for_batch() -> None:
    assert columns_of(["batch", "service_tier"]) == ("request_class",)
    lines = [
        UsageLine(DAY, {"request_class": name}, UsageCount(1, tokens, 0, 0))
        for name, tokens in (("flex", 1), ("offline", 10), ("online", 100))
    ]
    span = Span(DAY, date(2026, 11, 22))
    by_batch = buckets(span, lines, ["batch"])[0]["results"]
    assert {one["batch"]: one["input_tokens"] for one in by_batch} == {False: 101, True: 10}
    by_tier = buckets(span, lines, ["service_tier"])[0]["results"]
    assert {one["service_tier"]: one["input_tokens"] for one in by_tier} == {
        "flex": 1,
        "batch": 10,
        "default": 100,
    }
