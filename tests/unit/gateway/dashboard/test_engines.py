from __future__ import annotations

import json
from typing import Any

from engine_adapter.client.base import EngineFacts
from engine_adapter.client.fake import FakeEngineClient
from engine_adapter.client.fake_engine import FakeEngine
from gateway.dashboard.engines import MAX_SAMPLES, EngineHistory, EngineReading, read_engines


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
    )  # fmt: skip
    assert dict(shown.figures()) == {
        "policy": "conserve_v2",
        "slo.tbt_s": "0.11",
        "steps": "12,345",
        "ok": "yes",
        "stop_layers": "20 entries",
        "none": "–",
        "few": "1, 2",
    }


def test_highlights_are_what_is_reported_of_them() -> None:
    shown = reading(policy="conserve_v2", slo={"tbt_s": 0.11}, offline_tokens=1234, unknown=1)
    assert dict(shown.highlights()) == {
        "Policy": "conserve_v2",
        "TBT target": "110 ms",
        "Harvested tokens": "1,234",
    }


def test_an_engine_that_fails_its_health_check_is_not_called_well() -> None:
    facts = EngineFacts("m", 2048)
    assert EngineReading("http://e", facts).state == ("answering", "good")
    assert EngineReading("http://e", facts, healthy=False).state == ("not healthy", "warn")
    assert EngineReading("http://e", None, healthy=False).state == ("not answering", "bad")


def test_history_is_bounded_and_skips_silence() -> None:
    history = EngineHistory()
    history.add(EngineReading("http://e", None), 0.0)
    for second in range(MAX_SAMPLES + 5):
        history.add(reading(live={"running": ["a"]}), float(second))
    chart = json.loads(history.chart("http://e"))
    assert len(chart["x"]) == MAX_SAMPLES
    assert chart["x"][-1] == MAX_SAMPLES + 4
    assert chart["series"][0] == {"label": "running", "y": [1] * MAX_SAMPLES}
    assert json.loads(history.chart("http://unknown"))["x"] == []


async def test_engines_are_read_in_their_order_and_silence_is_no_error() -> None:
    up, down = FakeEngine(), FakeEngine()
    down.down = True
    readings = await read_engines([FakeEngineClient(down), FakeEngineClient(up)])
    assert [one.facts is not None for one in readings] == [False, True]
