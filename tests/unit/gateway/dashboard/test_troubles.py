"""What is wrong now, with cause and link."""

from __future__ import annotations

from datetime import timedelta

import pytest

from api.batch_shapes import WaitingReason
from engine_adapter.client.fake import FakeEngineClient
from engine_adapter.client.pool import Member
from gateway.dashboard import troubles
from gateway.dashboard.troubles import Storage, attainment_tone
from gateway.history.reading import Latencies, Moment
from store.models import WebhookEndpoint
from store.repositories.webhook_overview import EndpointOverview
from tests.unit.gateway.dashboard.test_views import NOW, view


def latencies(met: float, missed: float) -> Latencies:
    return Latencies([met, missed, 1.0, met + missed])


def moment(met: float, missed: float) -> Moment:
    return Moment(0, {"tbt:online": latencies(met, missed)})


def test_a_lost_engine_says_why() -> None:
    lost = Member(FakeEngineClient(url="http://e:1"), up=False, why="Connection refused.")
    (found,) = troubles.of_engines([lost], {"http://e:1": "rack 2"})
    assert found.what == "The engine rack 2 is lost"
    assert (found.tone, found.cause, found.path) == ("bad", "Connection refused.", "/engines")
    assert not [*troubles.of_engines([Member(FakeEngineClient(), up=True)], {})]
    assert [one.what for one in troubles.of_engines([], {})] == ["There is no engine"]


def test_targets_are_missed_below_the_threshold_and_not_by_chance() -> None:
    assert not [*troubles.of_targets(moment(95, 5))]
    (amber,) = troubles.of_targets(moment(92, 8))
    assert (amber.tone, amber.what) == ("warn", "Gaps between tokens miss their target")
    assert "92 % were in time" in amber.cause
    assert [one.tone for one in troubles.of_targets(moment(50, 50))] == ["bad"]
    assert not [*troubles.of_targets(moment(5, 5))], "ten gaps say nothing"


@pytest.mark.parametrize(
    ("beside", "apart", "cause"),
    [
        (70, 98, "In the engines 70 % beside batch work, 98 % without: batch work delays it."),
        (70, 80, "70 % beside batch work, 80 % without: chat alone is too much for them."),
        (97, 94, "94 % without: the time is lost on the way to them or from them."),
        (99, 99, "99 % without: the time is lost on the way to them or from them."),
        (70, None, "In the engines 70 % beside batch work."),
        (None, 80, "In the engines 80 % without: chat alone is too much for them."),
        (None, None, "95 % should be."),
    ],
)
def test_a_missed_target_says_where_the_time_goes(
    beside: int | None, apart: int | None, cause: str
) -> None:
    now = moment(70, 30)
    for kind, met in (("beside", beside), ("apart", apart)):
        if met is not None:
            now.latencies[f"{kind}:tbt"] = latencies(met, 100 - met)
    (found,) = troubles.of_targets(now)
    assert found.cause.endswith(cause)


@pytest.mark.parametrize(
    ("share", "tone"), [(None, "idle"), (1.0, "good"), (0.95, "good"), (0.94, "warn"), (0.8, "bad")]
)
def test_attainment_has_colours(share: float | None, tone: str) -> None:
    assert attainment_tone(share) == tone


def test_storage_workers_and_receivers() -> None:
    assert not [*troubles.of_storage(Storage(100, 20)), *troubles.of_workers(5.0)]
    assert not [
        *troubles.of_receivers([receiver("well")]),
        *troubles.of_workers(None),
        *troubles.of_storage(None),
    ]
    assert [one.tone for one in troubles.of_storage(Storage(100, 8))] == ["warn"]
    assert [one.tone for one in troubles.of_storage(Storage(100, 2))] == ["bad"]
    (late,) = troubles.of_workers(300.0)
    assert "5 min ago" in late.cause


def receiver(name: str, *, failing_s: float = 0, disabled: bool = False) -> EndpointOverview:
    endpoint = WebhookEndpoint(
        name=name,
        failing_since_at=NOW - timedelta(seconds=failing_s) if failing_s else None,
        disabled_at=NOW if disabled else None,
    )
    return EndpointOverview(endpoint, "Default", 2, NOW)


def test_receivers_that_fail_are_named() -> None:
    failing = [receiver("night", failing_s=300), receiver("day", failing_s=60)]
    off = [receiver(f"old-{n}", failing_s=900, disabled=True) for n in range(5)]
    found = [*troubles.of_receivers([*failing, receiver("well"), *off])]
    assert [(one.what, one.cause) for one in found] == [
        (
            "2 webhook receivers are failing",
            "Deliveries to night, day got no good answer for 5 min; 4 wait.",
        ),
        (
            "5 webhook receivers are disabled",
            "Nothing is sent to old-0, old-1, old-2 and 2 more any more.",
        ),
    ]
    (one,) = troubles.of_receivers([receiver("night", failing_s=300)])
    assert one.what == "1 webhook receiver is failing"


def test_rows_that_nobody_sends() -> None:
    old = NOW - timedelta(minutes=5)
    waits = view(in_progress_at=old)
    (found,) = troubles.of_dispatchers([view(), waits], None)
    assert (found.tone, found.path) == ("bad", "/batches/batch_1")
    assert found.cause == "There is none; rows of in.jsonl wait."
    (late,) = troubles.of_dispatchers([waits], 240.0)
    assert "4 min ago" in late.cause
    away = view(in_progress_at=old, said={"waiting_reason": WaitingReason.ENGINE_UNAVAILABLE})
    paused = view(in_progress_at=old, paused_at=old)
    at_engine = view(in_progress_at=old, num_running=100)
    assert not [*troubles.of_dispatchers([waits], 2.0)]
    assert not [*troubles.of_dispatchers([view(), away, paused, at_engine], None)]
