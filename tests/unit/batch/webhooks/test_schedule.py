from __future__ import annotations

import random
from datetime import UTC, datetime, timedelta

from hypothesis import given
from hypothesis import strategies as st

from batch.webhooks.deliver import RetrySchedule

START = datetime(2026, 1, 1, tzinfo=UTC)


@given(st.integers(min_value=1, max_value=10_000), st.integers())
def test_a_wait_lies_between_half_of_its_bound_and_the_whole(attempts: int, seed: int) -> None:
    schedule = RetrySchedule()
    longest = schedule.longest_wait_s(attempts)
    assert longest <= schedule.longest_s
    assert longest / 2 <= schedule.wait_s(attempts, random.Random(seed)) <= longest


def test_waits_grow_to_their_bound() -> None:
    schedule = RetrySchedule()
    waits = [schedule.longest_wait_s(number) for number in range(1, 12)]
    assert waits[:4] == [5, 15, 45, 135]
    assert waits == sorted(waits)
    assert waits[-1] == schedule.longest_s


def test_it_is_given_up_at_the_horizon_and_not_before() -> None:
    schedule = RetrySchedule()
    now, attempts = START, 0
    while True:
        attempts += 1
        later = schedule.next_at(attempts, START, now)
        if later is None:
            break
        now = later
    age = now - START
    assert timedelta(hours=66) - timedelta(seconds=1) <= age <= timedelta(hours=72)
    assert 15 <= attempts <= 40
