"""Counters, the mean gap between passes, and which requests are reported as live."""

from __future__ import annotations

from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import pytest

from engine_adapter.scheduling.request import Phase, RequestClass
from engine_adapter.scheduling.request import Request as EngineRequest
from engine_adapter.sglang.counters import COLD_STEPS, LONGEST_GAP_S, Counters, PassGap
from engine_adapter.sglang.report import live_ids, states_by_batch


def test_the_first_steps_say_nothing_about_the_machine() -> None:
    assert not Counters().is_warm
    assert not Counters(steps=COLD_STEPS - 1).is_warm
    assert Counters(steps=COLD_STEPS).is_warm


def test_stops_are_added_up_by_layer() -> None:
    counters = Counters()
    counters.stopped(3, 0.25, 2)
    counters.stopped(3, 0.5, 1)
    counters.stopped(7, 0.125, 1)
    plain = counters.to_plain()
    assert plain["stops_by_layer"] == {
        "3": {"num": 2, "sum_s": 0.75},
        "7": {"num": 1, "sum_s": 0.125},
    }
    assert (plain["undone_requests"], plain["stop_layers"]) == (4, [3, 3, 7])


def test_gaps_between_passes_are_averaged() -> None:
    gap = PassGap()
    gap.started(0.0)
    assert gap.mean_s == 0.0
    gap.ended(1.0)
    gap.started(1.004)
    assert gap.mean_s == pytest.approx(0.004)
    gap.ended(2.0)
    gap.started(2.014)
    assert gap.mean_s == pytest.approx(0.005)


def test_idle_time_is_no_gap() -> None:
    gap = PassGap()
    gap.ended(1.0)
    gap.started(1.0 + LONGEST_GAP_S + 0.001)
    assert gap.mean_s == 0.0


@dataclass
class Request:
    """What the report reads of SGLang's request."""

    rid: str
    priority: int | None = None
    custom_params: Any = None
    done: bool = False
    sampling_params: SimpleNamespace = field(init=False)

    def __post_init__(self) -> None:
        self.sampling_params = SimpleNamespace(custom_params=self.custom_params)

    def finished(self) -> bool:
        return self.done


def scheduler(
    waiting: list[Request],
    running: list[Request],
    last: list[Request] | None = None,
    chunked: Request | None = None,
    compiling: list[Request] | None = None,
) -> SimpleNamespace:
    return SimpleNamespace(
        waiting_queue=waiting,
        grammar_manager=SimpleNamespace(grammar_queue=compiling or []),
        running_batch=SimpleNamespace(reqs=running),
        last_batch=None if last is None else SimpleNamespace(reqs=last),
        chunked_req=chunked,
    )


def test_every_place_is_read_once() -> None:
    both = Request("both")
    report = live_ids(
        scheduler(
            waiting=[Request("queued")],
            compiling=[Request("compiling")],
            running=[Request("decoding"), both],
            last=[both, Request("prefilled")],
            chunked=Request("chunked"),
        )
    )
    assert report["waiting"] == ["queued", "compiling"]
    assert report["running"] == ["decoding", "both", "prefilled", "chunked"]


def test_a_finished_request_is_not_live() -> None:
    report = live_ids(
        scheduler([Request("refused", done=True)], [Request("over", done=True), Request("on")])
    )
    assert report["waiting"] == []
    assert report["running"] == ["on"]


def test_a_half_prefilled_request_in_the_queue_counts_as_running() -> None:
    chunked = Request("r")
    report = live_ids(scheduler([chunked], [], chunked=chunked))
    assert report["waiting"] == []
    assert report["running"] == ["r"]


def test_classes_come_from_the_private_fields() -> None:
    report = live_ids(
        scheduler(
            [Request("a"), Request("b", 0), Request("c", -2)],
            [Request("d", -2, {"coserve": {"class": "flex"}}), Request("e", -1)],
        )
    )
    assert report["classes"] == {
        "a": "online",
        "b": "online",
        "c": "offline",
        "d": "flex",
        "e": "flex",
    }


# --- What the requests of each batch do.


def request(rid: str, batch_id: str, phase: Phase) -> EngineRequest:
    made = EngineRequest(
        rid=rid,
        request_class=RequestClass.OFFLINE if batch_id else RequestClass.ONLINE,
        prompt_tokens=8,
        fill_tokens=8,
        max_output_tokens=8,
        arrival_at_s=0.0,
        batch_id=batch_id,
    )
    made.phase = phase
    return made


def test_each_batch_has_its_requests_by_state() -> None:
    requests = [
        request("a", "batch_1", Phase.DECODE),
        request("b", "batch_1", Phase.DECODE),
        request("c", "batch_1", Phase.PREFILL),
        request("d", "batch_1", Phase.WAITING),
        request("e", "batch_1", Phase.RETRACTED),
        request("f", "batch_2", Phase.DECODE),
        request("g", "", Phase.DECODE),
    ]
    assert states_by_batch(requests, {"b", "g"}) == {"batch_1": [2, 1, 2], "batch_2": [1, 0, 0]}
    assert states_by_batch([], ()) == {}
