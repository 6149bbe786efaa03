from __future__ import annotations

import json
import re
from typing import Any

import orjson
import pytest

from engine_adapter.client.base import EngineFacts
from engine_adapter.client.pool import Member
from gateway.dashboard.engines import (
    HISTORY_S,
    MAX_SAMPLES,
    EngineHistory,
    EngineReading,
    day_chart,
    read_engines,
    what_draining_means,
)
from gateway.dashboard.templating import render
from gateway.history.reading import History, Moment
from gateway.history.recorder import PERIOD_S
from gateway.history.series import EngineTime
from tests.fakes.client import FakeEngineClient
from tests.fakes.engine import FakeEngine


def reading(**runtime: Any) -> EngineReading:
    return EngineReading(
        "http://e", EngineFacts("m", 2048, kv_tokens=1000, raw={"coserve": runtime})
    )


def test_live_requests_are_counted() -> None:
    shown = reading(
        live={
            "running": ["a", "b"],
            "waiting": ["c"],
            "classes": {"a": "online", "b": "offline", "c": "offline"},
        }
    )
    assert (shown.num_running, shown.num_waiting) == (2, 1)
    assert shown.classes == {"online": 1, "flex": 0, "offline": 2}


def test_an_engine_without_our_plugin_shows_nothing_it_did_not_say() -> None:
    shown = EngineReading("http://e", EngineFacts("m", 2048))
    assert (shown.num_running, shown.kv_use, list(shown.figures())) == (0, None, [])


def test_kv_use_is_what_requests_hold() -> None:
    assert reading(page_tokens=1, free_pages=250).kv_use == 0.75
    assert reading(page_tokens=10, free_pages=25, evictable_pages=25).kv_use == 0.5
    assert reading(page_tokens=1, free_pages=2000).kv_use == 0.0
    assert reading(free_pages=250).kv_use is None


def test_figures_are_flat_and_leave_ids_out() -> None:
    shown = reading(
        live={"running": ["a"]}, policy="conserve_v2", slo={"tbt_s": 0.11}, steps=12345, ok=True,
        stop_layers=list(range(20)), none=None, few=[1, 2],
        stops_by_layer={"3": {"num": 1, "sum_s": 0.1}},
    )  # fmt: skip
    assert dict(shown.figures()) == {
        "policy": "conserve_v2",
        "slo.tbt_s": "110 ms",
        "steps": "12,345",
        "ok": "yes",
        "stop_layers": "20 entries",
        "none": "–",
        "few": "1, 2",
    }


def test_highlights_are_what_is_reported_of_them() -> None:
    shown = reading(
        policy="conserve_v2", slo={"tbt_s": 0.11}, offline_tokens=1234, parks=3114, unknown=1
    )
    assert list(shown.reported()) == [
        ("Scheduler", [("Policy", "conserve_v2"), ("TBT target", "110 ms")]),
        (
            "Scheduler, since the engine started",
            [("Harvested tokens", "1,234"), ("Row-steps parked", "3,114")],
        ),
    ]


def test_what_online_requests_got_stands_beside_the_targets() -> None:
    ttft = {"num": 1042, "p50_s": 0.4, "p90_s": 1.2304, "share_in_time": 0.978}
    shown = reading(slo={"ttft_s": 1.5}, attained={"ttft": ttft})
    assert dict(shown.reported())["Online requests of late, in the engine"] == [
        ("TTFT, P90", "1.2 s, 97.8 % in time (1,042 samples)")
    ]
    assert list(reading(attained={}).reported()) == []


def test_the_page_says_what_its_figures_count() -> None:
    shown = reading(
        page_tokens=1, free_pages=250, online_tokens=7, checkpointed_pages=5, parked_requests=3
    )
    page = render(
        "fragments/engine.html",
        number=0,
        e=shown,
        chart="{}",
        known=None,
        called="e",
        day="{}",
    )
    text = " ".join(re.sub(r"<[^>]+>", " ", page).split())
    assert "Requests now" in text
    assert "Parked 3" in text
    assert "KV memory in use 75 %" in text
    assert "KV memory, whole 1,000 tokens" in text
    assert "Most running –" in text
    assert "Scheduler, since the engine started Online tokens 7" in text
    assert "Host pages written (16 tokens each) 5" in text
    assert "first opened" not in text


def test_an_engine_that_fails_its_health_check_is_not_called_well() -> None:
    facts = EngineFacts("m", 2048)
    assert EngineReading("http://e", facts).state == ("answering", "good")
    assert EngineReading("http://e", facts, healthy=False).state == ("not healthy", "warn")
    assert EngineReading("http://e", None, healthy=False).state == ("not answering", "bad")


def chart_of(history: EngineHistory) -> tuple[list[float], list[int | None]]:
    chart = json.loads(history.chart("http://e"))
    assert [one["label"] for one in chart["series"]] == ["running", "waiting"]
    return chart["x"], chart["series"][0]["y"]


def test_history_is_bounded_in_time_and_in_number() -> None:
    history = EngineHistory()
    for second in range(0, int(HISTORY_S) + 100, 2):
        history.add(reading(live={"running": ["a"]}), float(second))
    x, y = chart_of(history)
    assert (x[0], x[-1]) == (98.0, HISTORY_S + 98)
    assert y == [1] * 901
    for tenth in range(2 * MAX_SAMPLES):
        history.add(reading(), 2000.0 + tenth / 10)
    assert len(chart_of(history)[0]) == MAX_SAMPLES
    assert json.loads(history.chart("http://unknown"))["x"] == []


def test_no_line_is_drawn_over_time_that_nobody_measured() -> None:
    history = EngineHistory()
    for at_s in (0.0, 2.0, 300.0, 302.0):
        history.add(reading(live={"running": ["a"]}), at_s)
    assert chart_of(history) == ([0, 2, 8, 300, 302], [1, 1, None, 1, 1])


def test_no_line_is_drawn_over_silence() -> None:
    history = EngineHistory()
    for at_s, up in ((0.0, True), (2.0, False), (4.0, True)):
        one = reading(live={"running": ["a"]})
        history.add(one if up else EngineReading("http://e", None), at_s)
    assert chart_of(history) == ([0, 2, 4], [1, None, 1])


async def test_engines_are_read_in_their_order_and_silence_is_no_error() -> None:
    up, down = FakeEngine(), FakeEngine()
    down.down = True
    readings = await read_engines([FakeEngineClient(down), FakeEngineClient(up)])
    assert [one.facts is not None for one in readings] == [False, True]


def test_a_day_of_an_engine_is_drawn_with_its_gaps() -> None:
    seen = EngineTime(asked=2.0, online_tokens=50.0, harvested_tokens=200.0)
    moments = [Moment(0, engines={"http://e": seen}), Moment(600)]
    chart = orjson.loads(day_chart(History(moments), "http://e", (0, 600)))
    assert chart["x"] == [0, 600]
    covered_s = 2 * PERIOD_S
    assert [one["y"] for one in chart["series"]] == [
        [round(50 / covered_s, 1), None],
        [round(200 / covered_s, 1), None],
    ]


@pytest.mark.parametrize(
    ("others", "said"),
    [
        ([], "This is the last engine of m: chat with it will be refused"),
        ([("m", True, True)], "This is the last engine of m"),
        ([("m", False, False)], "This is the last engine of m"),
        ([("other", True, False)], "This is the last engine of m"),
        ([("m", True, False)], "New requests for m go to 1 other engine."),
        ([("m", True, False)] * 2, "New requests for m go to 2 other engines."),
    ],
)
def test_draining_says_what_it_refuses(others: list[tuple[str, bool, bool]], said: str) -> None:
    members = [
        Member(
            FakeEngineClient(url=f"http://e:{n}"),
            facts=EngineFacts(model, 2048),
            up=up,
            draining=draining,
        )
        for n, (model, up, draining) in enumerate([("m", True, False), *others])
    ]
    assert what_draining_means(members, "http://e:0").startswith(said)
