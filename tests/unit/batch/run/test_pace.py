from __future__ import annotations

from batch.run.pace import SPAN_S, Pace, TokenCosts


def test_work_is_what_the_profile_predicts() -> None:
    costs = TokenCosts.reported(0.001, 0.01)
    assert costs.work(1000, 100) == 2.0
    assert costs.measured
    assert TokenCosts.reported(None, 0.01) == TokenCosts()


def test_the_pace_is_that_of_the_last_half_minute() -> None:
    pace = Pace()
    pace.begin(100.0)
    assert pace.per_s(100.0) is None
    for second in range(10):
        pace.note(100.0 + second, 3.0)
    assert pace.per_s(110.0) == 3.0
    for second in range(10, 100):
        pace.note(100.0 + second, 1.0)
    assert pace.per_s(200.0) == 1.0
    assert pace.per_s(201.0 + SPAN_S) is None


def test_before_a_row_has_ended_an_engine_is_taken_at_its_word() -> None:
    pace = Pace()
    pace.costs = TokenCosts.reported(0.001, 0.01)
    assert pace.per_s(0.0) == 1.0


def test_idle_time_is_no_slow_time() -> None:
    pace = Pace()
    pace.begin(0.0)
    pace.note(1.0, 5.0)
    pace.begin(20.0)
    pace.note(21.0, 5.0)
    assert pace.per_s(21.0) == 5.0
