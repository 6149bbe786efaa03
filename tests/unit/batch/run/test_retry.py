from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from batch.run import retry
from batch.run.retry import Again, GiveUp


@pytest.mark.parametrize("status_code", [408, 429, 500, 502, 503, 504])
def test_what_may_pass_is_repeated(status_code: int) -> None:
    assert isinstance(retry.after_failure(status_code, 0, max_attempts=3, jitter=0.5), Again)


@pytest.mark.parametrize("status_code", [400, 401, 404, 413, 422])
def test_what_cannot_pass_is_not_repeated(status_code: int) -> None:
    assert retry.after_failure(status_code, 0, max_attempts=3, jitter=0.5) == GiveUp()


def test_attempts_are_bounded() -> None:
    outcomes = [retry.after_failure(500, n, max_attempts=3, jitter=0.0) for n in range(3)]
    assert [type(outcome) for outcome in outcomes] == [Again, Again, GiveUp]


def test_the_pause_doubles() -> None:
    pauses = [retry.backoff_s(n, 0.0) for n in range(4)]
    assert pauses == [0.25, 0.5, 1.0, 2.0]


@given(num_before=st.integers(0, 10_000), jitter=st.floats(0, 1, exclude_max=True))
def test_the_pause_is_bounded(num_before: int, jitter: float) -> None:
    pause_s = retry.backoff_s(num_before, jitter)
    assert retry.BASE_DELAY_S / 2 <= pause_s <= retry.MAX_DELAY_S
