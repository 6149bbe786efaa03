"""Delays between starts."""

from __future__ import annotations

from coserve.local.restart import Backoff, RestartPolicy

POLICY = RestartPolicy(first_delay_s=1, factor=2, longest_delay_s=5, steady_s=60)


def test_delays_grow_to_the_longest() -> None:
    backoff = Backoff(POLICY)
    assert [backoff.next_delay_s(0.1) for _ in range(5)] == [1, 2, 4, 5, 5]


def test_a_long_run_is_forgiven() -> None:
    backoff = Backoff(POLICY)
    for _ in range(4):
        backoff.next_delay_s(0.1)
    assert backoff.next_delay_s(60.0) == 1
    assert backoff.next_delay_s(59.9) == 2


def test_by_default_no_number_of_deaths_makes_a_recovery_slow() -> None:
    backoff = Backoff(RestartPolicy())
    delays = [backoff.next_delay_s(0.1) for _ in range(20)]
    assert delays[0] <= 0.5
    assert max(delays) <= 5.0
