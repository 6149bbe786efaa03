from __future__ import annotations

from lab.workload.records import RequestRecord


def record(input_tokens: int = 100) -> RequestRecord:
    return RequestRecord("r", online=False, input_tokens=input_tokens, scheduled_s=1.0)


def test_ttft_counts_from_the_scheduled_instant() -> None:
    assert record().ttft_s is None
    r = record()
    r.sent_s = 1.5
    r.on_progress(2.0, completion_tokens=1, cached_tokens=0, retractions=0)
    r.on_progress(2.1, 2, 0, 0)
    assert r.ttft_s == 1.0
    assert [round(gap, 6) for gap in r.gaps_s] == [0.1]


def test_tokens_that_arrive_together_have_no_gap() -> None:
    r = record()
    r.on_progress(2.0, 1, 0, 0)
    r.on_progress(3.0, 3, 0, 0)
    assert r.gaps_s == [1.0, 0.0]


def test_a_stream_that_was_cut_stood_still_until_then() -> None:
    r = record()
    r.on_progress(2.0, 1, 0, 0)
    r.on_progress(2.5, 2, 0, 0)
    r.given_up_s = 9.5
    assert r.gaps_s == [0.5, 7.0]
    assert r.gap_ends_s == [2.5, 9.5]


def test_a_window_counts_what_is_fresh() -> None:
    r = record(100)
    r.on_progress(5.0, 1, cached_tokens=30, retractions=0)
    r.on_progress(11.0, 2, 30, 0)
    assert r.tokens_within(0.0, 10.0) == 70 + 1
    assert r.tokens_within(10.0, 20.0) == 1


def test_a_retraction_is_counted_and_prefix_hits_stand_still() -> None:
    """What a request finds again of its own prompt is no hit."""
    r = record(100)
    r.on_progress(1.0, 1, 0, 0)
    r.on_progress(2.0, 4, 0, 0)
    r.on_progress(9.0, 5, cached_tokens=90, retractions=1)
    assert r.retractions == 1
    assert r.cached_tokens == 0
