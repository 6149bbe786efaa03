"""The verdict: a table of situations, and what may never be claimed."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest

from gateway.verdict.facts import (
    LOOK_BACKS,
    Disk,
    Engine,
    Facts,
    Kept,
    LiveBatch,
    LookBack,
    Receiver,
)
from gateway.verdict.harvest import Harvest, Price
from gateway.verdict.judge import CHAT_STATES, MIN_JUDGED, Verdict, judge, tone_of
from gateway.verdict.remedies import REMEDIES, Act

ENGINE = Engine("rack 2", "m", slowdown=1.0, usual_slowdown=1.0)
TARGETS = {"ttft": 0.5, "tbt": 0.1}


def kept(met: float, missed: float) -> Kept:
    return Kept(met, missed, met + missed)


def looks(
    answers: Mapping[str, float] | None = None, **series: tuple[float, float]
) -> list[LookBack]:
    """The same in every look back: it all came in the last minute."""
    seen = {name.replace("_", ":"): kept(*one) for name, one in series.items()}
    return [LookBack(minutes, seen, answers or {}) for minutes in LOOK_BACKS]


def service(**changes: Any) -> Facts:
    """One that is well, but for what is said."""
    well = Facts(
        engines=[ENGINE],
        look_backs=looks({"200": 100.0}, ttft_online=(98, 2), tbt_online=(99, 1)),
        targets_s=TARGETS,
        harvest=Harvest(8.1e6, 7560.0),
        batches=[],
        sweep_age_s=2.0,
        heartbeat_age_s=1.0,
    )
    return replace(well, **changes)


def codes(verdict: Verdict) -> list[str]:
    return [issue.code for issue in verdict.issues]


LATE = (33.0, 67.0)

SITUATIONS: dict[str, tuple[Facts, list[str], str, bool]] = {
    # situation: facts, codes of its issues, words of chat, degraded
    "well": (service(), [], "Chat is in time: first tokens 98 %", False),
    "late, where is not known": (
        service(look_backs=looks(tbt_online=LATE)),
        ["late"],
        "Chat is late: gaps between tokens 33 % (last minute); 95 % should be in time",
        True,
    ),
    "slower machine": (
        service(
            engines=[replace(ENGINE, slowdown=1.87)],
            look_backs=looks(tbt_online=LATE, beside_tbt=LATE, apart_tbt=LATE),
        ),
        ["late_slow_machine"],
        "Chat is late",
        True,
    ),
    "old profile": (
        service(
            engines=[replace(ENGINE, slowdown=1.87, usual_slowdown=1.8)],
            look_backs=looks(tbt_online=LATE, beside_tbt=LATE, apart_tbt=LATE),
        ),
        ["late_old_profile"],
        "Chat is late",
        True,
    ),
    "no profile yet": (
        service(engines=[replace(ENGINE, profile="measuring")], look_backs=looks(ttft_online=LATE)),
        ["late_measuring"],
        "Chat is late",
        True,
    ),
    "too much chat": (
        service(look_backs=looks(tbt_online=LATE, beside_tbt=LATE, apart_tbt=LATE)),
        ["late_too_much_chat"],
        "Chat is late",
        True,
    ),
    "batch work": (
        service(look_backs=looks(tbt_online=LATE, beside_tbt=LATE, apart_tbt=(98, 2))),
        ["late_batch_work"],
        "Chat is late",
        True,
    ),
    "the way to the engines": (
        service(
            engines=[replace(ENGINE, slowdown=1.87)],
            look_backs=looks(tbt_online=LATE, beside_tbt=(97, 3), apart_tbt=(99, 1)),
        ),
        ["late_outside"],
        "Chat is late",
        True,
    ),
    "one of two engines drained, the other too slow": (
        service(
            engines=[ENGINE, replace(ENGINE, draining=True)], look_backs=looks(ttft_online=LATE)
        ),
        ["late_fewer_engines", "engine_drained"],
        "Chat is late",
        True,
    ),
    "a little late": (
        service(look_backs=looks(tbt_online=(92, 8))),
        ["late"],
        "Chat is late",
        False,
    ),
    "the only engine drained": (
        service(engines=[replace(ENGINE, draining=True)]),
        ["all_drained"],
        "Chat is refused: no engine takes requests",
        True,
    ),
    "an engine lost": (
        service(engines=[ENGINE, Engine("b", "m", up=False, why="Refused.")]),
        ["engine_lost"],
        "Chat is in time",
        True,
    ),
    "all engines lost": (
        service(engines=[Engine("b", "m", up=False, why="Refused.")]),
        ["engine_lost"],
        "Chat is refused",
        True,
    ),
    "everything fails": (
        service(look_backs=looks({"503": 42.0})),
        ["requests_fail"],
        "100 % of requests failed in the last minute: 42 × 503",
        True,
    ),
    "some fails": (
        service(look_backs=looks({"200": 88.0, "503": 11.0, "500": 1.0}, ttft_online=(98, 2))),
        ["requests_fail"],
        "12 % of requests failed in the last minute: 11 × 503, 1 × 500",
        True,
    ),
    "few requests, and all fail": (
        service(look_backs=looks({"503": 3.0})),
        ["requests_fail"],
        "3 of 3 requests failed in the last hour: 3 × 503",
        True,
    ),
    "everybody is turned away": (
        service(look_backs=looks({"429": 60.0})),
        ["requests_refused"],
        "100 % of requests were refused in the last minute: 60 × 429",
        False,
    ),
    "a failing receiver": (
        service(receivers=[Receiver("night", 300.0, num_waiting=4)]),
        ["receiver_failing"],
        "Chat is in time",
        False,
    ),
    "a disabled receiver": (
        service(receivers=[Receiver("night", 900.0, disabled=True)]),
        ["receiver_disabled"],
        "Chat is in time",
        False,
    ),
    "a disk that fills": (
        service(disk=Disk(100, 8)),
        ["disk_nearly_full"],
        "Chat is in time",
        False,
    ),
    "a full disk": (service(disk=Disk(100, 2)), ["disk_full"], "Chat is in time", True),
    "a full file store": (service(full=["files"]), ["disk_full"], "Chat is in time", True),
    "no file store": (service(full=["files_away"]), ["disk_full"], "Chat is in time", True),
    "a batch too late": (
        service(batches=[LiveBatch("batch_1", "in.jsonl", 900.0)], num_live=1),
        ["batch_late"],
        "Chat is in time",
        False,
    ),
    "rows that nobody sends": (
        service(
            batches=[LiveBatch("batch_1", "in.jsonl", unsent_s=300.0)],
            num_live=1,
            heartbeat_age_s=240.0,
        ),
        ["dispatcher_away"],
        "Chat is in time",
        True,
    ),
    "no worker": (service(sweep_age_s=300.0), ["workers_away"], "Chat is in time", True),
    "stages wait": (service(stage_wait_s=600.0), ["stages_late"], "Chat is in time", True),
    "no broker": (service(broker_answers=False), ["broker_away"], "Chat is in time", True),
    "no database": (
        Facts(engines=[ENGINE], database_answers=False),
        ["database_away"],
        "Chat was not measured",
        True,
    ),
    "a standby": (service(database_takes_writes=False), ["database_away"], "Chat is in time", True),
    "a loop down": (service(loops_down=["usage"]), ["loop_down"], "Chat is in time", True),
    "no engine": (service(engines=[]), ["no_engine"], "Chat is refused", True),
    "an address that is none": (service(num_unusable=1), ["engine_unusable"], "Chat is", True),
    "a policy that errs": (
        service(engines=[replace(ENGINE, num_policy_errors=3, policy_error="KeyError")]),
        ["policy_errs"],
        "Chat is in time",
        True,
    ),
    "a quiet night": (
        service(look_backs=[LookBack(n) for n in LOOK_BACKS]),
        [],
        "No chat in the last hour",
        False,
    ),
    "no target": (
        service(
            look_backs=[LookBack(n, {"ttft:online": Kept(0, 0, 50)}) for n in LOOK_BACKS],
            targets_s={},
        ),
        [],
        "No latency target is set",
        False,
    ),
    "a handful of chats": (
        service(look_backs=looks({"200": 5.0}, ttft_online=(0, 5))),
        [],
        "Too little chat to judge: 5 samples in the last hour",
        False,
    ),
}


@pytest.mark.parametrize("name", SITUATIONS)
def test_situations(name: str) -> None:
    facts, wanted, said, degraded = SITUATIONS[name]
    verdict = judge(facts)
    assert codes(verdict) == wanted
    assert verdict.chat.says.startswith(said)
    assert verdict.degraded is degraded


def test_the_table_has_every_issue_and_every_state_of_chat() -> None:
    verdicts = [judge(facts) for facts, *_ in SITUATIONS.values()]
    assert {code for verdict in verdicts for code in codes(verdict)} == {*REMEDIES}
    assert {verdict.chat.state for verdict in verdicts} == {*CHAT_STATES}


def test_the_engine_with_the_old_profile_can_be_profiled_from_its_issue() -> None:
    old = replace(ENGINE, name="rack 3", url="http://b", slowdown=1.9, usual_slowdown=1.8)
    late = looks(tbt_online=LATE, beside_tbt=LATE, apart_tbt=LATE)
    (issue,) = judge(service(engines=[ENGINE, old], look_backs=late)).issues
    assert issue.engines == {"http://b": "rack 3"}
    assert Act.PROFILE in REMEDIES[issue.code].acts


@pytest.mark.parametrize("minutes", LOOK_BACKS)
def test_the_shortest_look_back_with_enough_samples_is_judged(minutes: int) -> None:
    few, enough = (MIN_JUDGED - 1, 0), (0, MIN_JUDGED)
    found = judge(
        service(
            look_backs=[
                LookBack(n, {"tbt:online": kept(*(few if n < minutes else enough))})
                for n in LOOK_BACKS
            ]
        )
    )
    label = {1: "last minute", 60: "last hour"}.get(minutes, f"last {minutes} min")
    assert found.chat.says.startswith(f"Chat is late: gaps between tokens 0 % ({label})")


def test_nothing_is_claimed_that_was_not_measured() -> None:
    for facts in (
        Facts(engines=[ENGINE], database_answers=False),
        Facts(engines=[ENGINE], look_backs=[LookBack(n) for n in LOOK_BACKS], batches=[]),
        service(look_backs=looks(ttft_online=(MIN_JUDGED - 1, 0))),
    ):
        verdict = judge(facts)
        assert "in time" not in verdict.chat.says
        assert verdict.chat.tone == "idle"
    unknown = judge(Facts(engines=[ENGINE], database_answers=False))
    assert (unknown.harvest.state, unknown.batches.state) == ("unknown", "unknown")
    some = [LiveBatch("a", "a", -60.0), LiveBatch("b", "b")]
    assert judge(service(batches=some, num_live=2)).batches.says == (
        "2 live batches, 1 predicted to end within the completion window, no prediction for the"
        " others."
    )
    assert judge(service(batches=some[1:], num_live=1)).batches.tone == "idle"


def test_amounts_are_told() -> None:
    said = "8.1 M batch tokens in the last 24 h, beside chat: 2.1"
    assert judge(service()).harvest.says == f"{said} engine-hours."
    priced = Harvest(8.1e6, 7560.0, on_gpus=True, price=Price(0.30, "USD"))
    assert judge(service(harvest=priced)).harvest.says == f"{said} GPU-hours, worth 2.43 USD."
    assert judge(service(harvest=Harvest())).harvest.says == "No batch tokens in the last 24 h."


def test_without_a_key_nobody_is_named() -> None:
    verdict = judge(
        service(
            engines=[Engine("http://10.0.0.5:1", "m", up=False, why="Secret."), ENGINE],
            batches=[LiveBatch("batch_1", "payroll.jsonl", 900.0, 300.0)],
            num_live=1,
            heartbeat_age_s=None,
            receivers=[Receiver("acme", 300.0), Receiver("corp", 300.0, disabled=True)],
        )
    )
    assert len(verdict.issues) == 5
    told = str(verdict.unnamed())
    assert not re.search(r"10\.0\.0\.5|Secret|batch_1|payroll|acme|corp", told)
    assert {issue["code"] for issue in verdict.unnamed()["issues"]} == {*codes(verdict)}


def test_the_worst_comes_first() -> None:
    verdict = judge(service(disk=Disk(100, 8), loops_down=["usage"]))
    assert codes(verdict) == ["loop_down", "disk_nearly_full"]


@pytest.mark.parametrize(
    ("share", "tone"), [(None, "idle"), (1.0, "good"), (0.95, "good"), (0.94, "warn"), (0.8, "bad")]
)
def test_a_share_in_time_has_a_colour(share: float | None, tone: str) -> None:
    assert tone_of(share) == tone


@pytest.mark.parametrize(
    ("num_open", "num", "says"),
    [
        (0, 1, "0 of 1 engine gets requests"),
        (1, 1, "1 of 1 engine gets requests"),
        (1, 2, "1 of 2 engines gets requests"),
        (0, 2, "0 of 2 engines get requests"),
        (2, 3, "2 of 3 engines get requests"),
    ],
)
def test_the_verb_agrees_with_the_engines(num_open: int, num: int, says: str) -> None:
    engines = [replace(ENGINE, draining=number >= num_open) for number in range(num)]
    assert judge(service(engines=engines)).parts.says.startswith(says)
