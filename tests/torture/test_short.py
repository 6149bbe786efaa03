"""The short form of `make torture`, for every run of the tests; and how failures are judged."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.chaos.victims import Kind
from tests.torture import figures
from tests.torture.chats import ChatsSeen, Failure, judge
from tests.torture.faults import (
    HUNG_BROKER,
    KILLS,
    LOADS,
    LOST_COMMITS,
    NOTHING,
    POSTGRES_AWAY,
    VALKEY_AWAY,
    Fault,
    Span,
    Spoils,
)
from tests.torture.suite import Setting, run

SHORT = Setting(
    seed=1,
    faults=(
        LOST_COMMITS.name, KILLS[Kind.GATEWAY].name, POSTGRES_AWAY.name,
        KILLS[Kind.POOL_CHILD].name, VALKEY_AWAY.name,
    ),
    num_lines=150,
    num_chatters=2,
    stop_s=3.0,
)  # fmt: skip

LOADED = replace(SHORT, faults=(HUNG_BROKER.name, *(load.name for load in LOADS)))
"""Every load of a stranger, once."""

DEATH = Span(KILLS[Kind.GATEWAY], 10.0, 14.0, gateway_died_s=(10.0, 10.1))
AWAY = Span(Fault("away", NOTHING, frozenset({Spoils.DATABASE})), 20.0, 25.0)


@pytest.mark.thorough
@pytest.mark.parametrize("setting", [SHORT, LOADED], ids=["faults", "loads"])
async def test_nothing_is_lost_doubled_or_leaked(setting: Setting) -> None:
    told = figures.summary(await run(setting))
    assert told["num_faults"] == len(setting.faults)
    assert told["num_chats_answered"] > 0
    assert told["lines"]["num_lines"] >= 3 * setting.num_lines
    assert told["broken"] == {}, figures.table(told)


@pytest.mark.parametrize(
    ("connected_s", "failed_s", "excused"),
    [
        (9.0, 10.05, True),
        (10.05, 12.0, True),
        (9.0, 9.9, False),  # cut before anybody died
        (10.2, 12.0, False),  # begun on the next gateway
    ],
)
def test_a_cut_is_excused_only_by_the_death_of_its_own_gateway(
    connected_s: float, failed_s: float, excused: bool
) -> None:
    seen = ChatsSeen(failures=[Failure("ann", connected_s, failed_s, "cut", "")])
    verdict = judge(seen, [DEATH, AWAY])
    assert (len(verdict.broken), sum(verdict.excused.values())) == (not excused, excused)


@pytest.mark.parametrize(
    ("known_at_s", "excused"), [([], True), ([9.0], True), ([9.0, 12.0], False)]
)
def test_a_database_that_is_away_excuses_only_gateways_that_do_not_know_the_key(
    known_at_s: list[float], excused: bool
) -> None:
    failure = Failure("ann", 21.0, 22.0, "database_unavailable", "")
    seen = ChatsSeen(failures=[failure], known_at_s={"ann": known_at_s, "bob": [12.0]})
    assert len(judge(seen, [DEATH, AWAY]).broken) == (not excused)


def test_an_answer_of_the_gateway_itself_is_never_excused_by_its_death() -> None:
    seen = ChatsSeen(failures=[Failure("ann", 9.0, 10.05, "internal_error", "")])
    assert len(judge(seen, [DEATH, AWAY]).broken) == 1
