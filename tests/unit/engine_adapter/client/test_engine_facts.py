"""Whatever answers at an engine's address gives facts, or a reason."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import orjson
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from batch.run.pace import TokenCosts
from batch.run.window import start
from engine_adapter.client.engine_facts import (
    MAX_COUNT,
    EngineFacts,
    NotAnEngine,
    read_facts,
    read_live,
)
from engine_adapter.client.pool import EnginePool, Member, ModelInfo, Route
from gateway.dashboard.engines import EngineReading
from gateway.dashboard.isolation import _pauses
from gateway.dashboard.scheduler import draw, steps_of
from gateway.engines.row_states import at_engines
from gateway.history.series import engine_gauges, engine_totals
from gateway.observability.latency_metrics import targets_of
from gateway.observability.runtime_metrics import RuntimeMetrics
from gateway.prompts.rooms import FlexRoom
from tests.fakes.client import FakeEngine, FakeEngineClient, FakeSettings

REPORT = orjson.loads((Path(__file__).parents[3] / "data" / "engine_report.json").read_bytes())
INFO = {
    "served_model_name": "m",
    "context_length": 2048,
    "max_total_num_tokens": 4096,
    "max_running_requests": 8,
    "version": "0.5.16",
    "internal_states": [
        {
            "coserve": {
                **REPORT,
                "live": {"waiting": ["a"], "running": ["b"], "classes": {}},
                "model": {"vocab_size": 100, "hidden_size": 16},
            }
        }
    ],
}
MODELS = {"data": [{"id": "m", "max_model_len": 2048}]}

numbers = st.integers(-(2**70), 2**70) | st.floats(allow_nan=False)
scalars = st.none() | st.booleans() | numbers | st.text(max_size=8)
anything = st.recursive(
    scalars,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner),
    max_leaves=12,
)


def use(facts: EngineFacts) -> None:
    """Everything in the service that reads facts."""
    for size in (facts.context_tokens, facts.vocab_size, facts.hidden_size, facts.kv_tokens):
        assert 0 <= size <= MAX_COUNT
    client = FakeEngineClient(FakeEngine(FakeSettings(model="m")), url="fake://a")
    member = Member(client, facts=facts, up=True)
    pool = EnginePool()
    pool.members = [member]
    pool.models()
    metrics = RuntimeMetrics()
    metrics.read([member])
    list(metrics.collect())
    engine_totals(facts)
    engine_gauges(facts, up=True)
    targets_of(facts)
    at_engines([member], "batch_1")
    _pauses([member])
    FlexRoom().choose(pool, Route(member), facts.model, 1)
    start(256, facts.max_running)
    TokenCosts.reported(
        facts.reported("token_costs.prompt_s"), facts.reported("token_costs.answer_s")
    )
    reading = EngineReading("http://a", facts)
    for shown in (reading.now, reading.limits, reading.reported, reading.figures):
        list(shown())
    assert reading.num_waiting + reading.num_running >= 0
    assert reading.num_parked is None or reading.num_parked >= 0
    assert all(num >= 0 for num in reading.classes.values())
    draw(steps_of(reading.runtime.get("recent_steps")), None)


def read(info: Any, models: Any = MODELS, model_info: Any = None) -> EngineFacts | None:
    try:
        live = read_live(info)
        facts = read_facts(info, models, model_info)
    except NotAnEngine:
        return None
    assert all(isinstance(rid, str) for rid in live.waiting | live.running)
    return facts


def test_a_real_report_is_read_whole() -> None:
    facts = read(INFO)
    assert facts is not None
    assert facts.runtime == INFO["internal_states"][0]["coserve"]  # type: ignore[index]
    assert (facts.model, facts.context_tokens, facts.flex_room) == ("m", 2048, 24)
    assert (facts.sizes.vocab_size, facts.sizes.hidden_size) == (100, 16)
    assert read_live(INFO).running == {"b"}
    use(facts)


@pytest.mark.parametrize(
    "answer",
    [[], None, 3, "text", True, {"internal_states": 3}, {"internal_states": ["a"]},
     {"internal_states": {"coserve": {}}}],
)  # fmt: skip
def test_another_answer_has_a_reason(answer: Any) -> None:
    with pytest.raises(NotAnEngine, match="/server_info"):
        read_facts(answer, MODELS)
    with pytest.raises(NotAnEngine, match="/server_info"):
        read_live(answer)


@pytest.mark.parametrize("answer", [[], 3, {"data": 3}, {"data": [3]}])
def test_another_list_of_models_has_a_reason(answer: Any) -> None:
    with pytest.raises(NotAnEngine, match="/v1/models"):
        read_facts(INFO, answer)


def test_a_figure_of_another_shape_is_left_out() -> None:
    ours = {**REPORT, "flex_room": "many", "slo": 3, "attained": {"ttft": {"num": 3}}, "steps": -1}
    facts = read({"internal_states": [{"coserve": ours}]})
    assert facts is not None
    assert facts.plugin_is_live
    assert facts.flex_room is None
    for path in ("flex_room", "slo", "attained.ttft", "steps"):
        assert facts.reported(path) is None
    assert facts.reported("online_tokens") == REPORT["online_tokens"]


@pytest.mark.parametrize("name", ["a\x00b", "m" * 10_000, 3, ["m"], "a\nb"])
def test_a_model_that_cannot_be_stored_is_none(name: Any) -> None:
    facts = read(INFO | {"served_model_name": None}, {"data": [{"id": name}]})
    assert facts is not None
    assert facts.model == ""


@given(anything, anything, anything)
@settings(max_examples=80, deadline=None)
def test_any_json_gives_facts_or_a_reason(info: Any, models: Any, model_info: Any) -> None:
    for answers in ((info, models, model_info), (INFO, models, model_info), (info, MODELS, None)):
        facts = read(*answers)
        if facts is not None:
            use(facts)


def paths_of(found: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    keys: list[Any] = []
    if isinstance(found, dict):
        keys = list(found)
    elif isinstance(found, list):
        keys = list(range(min(2, len(found))))
    return [path, *(one for key in keys for one in paths_of(found[key], (*path, key)))]


@given(st.data())
@settings(max_examples=120, deadline=None)
def test_any_change_of_a_real_report_gives_facts_or_a_reason(data: st.DataObject) -> None:
    info: Any = copy.deepcopy(INFO)
    for _ in range(data.draw(st.integers(1, 3))):
        *above, last = data.draw(st.sampled_from(paths_of(info)[1:]))
        place = info
        for key in above:
            place = place[key]
        place[last] = data.draw(anything)
    facts = read(info)
    if facts is not None:
        use(facts)


@pytest.mark.parametrize(
    ("signed", "version"), [(True, "0.5.16"), (None, "0.5.16"), (False, "0.5.16 (unsigned)")]
)
def test_a_release_that_nobody_has_tried_is_named_so(signed: bool | None, version: str) -> None:
    said = {"coserve": {"plugin": "live", "signed": signed}}
    facts = read_facts({**INFO, "internal_states": [said]}, MODELS)
    assert facts.version == version
    assert facts.unsigned == (version if signed is False else "")
    told = ModelInfo("m", 1, True, unsigned=facts.unsigned).told()
    assert told.get("coserving_engine") == (f"SGLang {version}" if signed is False else None)
