"""The table of what limits co-serving, and what is told of an engine."""

from __future__ import annotations

import pytest

from engine_adapter.coserving_levels import FULL_LEVEL, LIMITS, Ability, Coserving, found


def test_without_a_limit_it_is_whole() -> None:
    whole = Coserving()
    assert whole.to_plain() == {"coserving_level": FULL_LEVEL, "coserving_reasons": {}}
    assert all(whole.can(ability) for ability in Ability)


@pytest.mark.parametrize("name", LIMITS)
def test_each_limit_takes_something_and_says_why_in_one_sentence(name: str) -> None:
    one = found(name, "this")
    assert 0 <= one.limit.level < FULL_LEVEL
    assert one.why.endswith(".")
    assert "\n" not in one.why
    assert "{" not in one.why


def test_each_missing_level_has_the_first_reason_that_stands_against_it() -> None:
    limited = Coserving.of([found("page", 32), found("no layers")])
    assert limited.level == 1
    assert limited.reasons == {"2": found("no layers").why, "3": found("page", 32).why}


def test_a_limit_on_copies_stops_no_stops() -> None:
    limited = Coserving.of([found("page", 32)])
    assert limited.level == 2
    assert [one for one in Ability if not limited.can(one)] == [Ability.COPIES]


def test_without_our_steps_there_is_nothing_of_the_rest() -> None:
    left = Coserving.of([found("lora")])
    assert left.level == 0
    assert not any(left.can(ability) for ability in Ability)
    assert set(left.reasons) == {"1", "2", "3"}
