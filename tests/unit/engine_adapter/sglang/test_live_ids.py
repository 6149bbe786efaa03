"""Which requests an engine reports as live."""

from __future__ import annotations

from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

from engine_adapter.sglang.live_ids import live_ids


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
