"""When an engine that went away is expected back."""

from __future__ import annotations

from engine_adapter.client.absence import LONGEST_WAIT_S, RETURN_S, Absence


def test_an_engine_is_expected_after_what_its_last_absence_lasted() -> None:
    absence = Absence()
    absence.begin(100.0)
    absence.begin(105.0)
    assert absence.wait_s(100.0) == RETURN_S
    assert absence.wait_s(110.0) == RETURN_S - 10
    absence.end(112.0)
    absence.begin(200.0)
    assert absence.wait_s(200.0) == 12
    assert absence.wait_s(211.5) == 1


def test_one_that_is_overdue_is_asked_less_and_less_often() -> None:
    absence = Absence()
    absence.begin(0.0)
    waits = [absence.wait_s(away_s) for away_s in (30.0, 60.0, 90.0, 1000.0)]
    assert waits == [15, 30, 45, LONGEST_WAIT_S]


def test_one_that_never_went_away_is_no_reason_to_wait_for_nothing() -> None:
    absence = Absence()
    absence.end(5.0)
    assert absence.usual_s == RETURN_S
    assert absence.wait_s(5.0) == RETURN_S
