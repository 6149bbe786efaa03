"""Which requests the engine holds, by id: what the service needs to prove that an abort worked.

SGLang answers 200 to every abort and lists its requests nowhere.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from engine_adapter.sglang.live_requests import classify


def live_ids(scheduler: Any) -> dict[str, Any]:
    """The `live` entry of a scheduler's state; see `live_report`."""
    return live_report(stock_waiting(scheduler), stock_holding(scheduler))


def live_report(waiting: Iterable[Any], holding: Iterable[Any]) -> dict[str, Any]:
    """The `live` entry of an engine's state.

    Args:
        waiting: SGLang's request objects without a slot.
        holding: Those with one. A request in both counts here; repeats and finished ones, whose
            batch was not filtered yet, are left out.

    Returns:
        `{"waiting": [rid], "running": [rid], "classes": {rid: "online" | "flex" | "offline"}}`.
    """
    running = {request.rid: request for request in holding if not request.finished()}
    queued = {
        request.rid: request
        for request in waiting
        if request.rid not in running and not request.finished()
    }
    return {
        "waiting": list(queued),
        "running": list(running),
        "classes": {rid: _class_label(request) for rid, request in (queued | running).items()},
    }


def stock_waiting(scheduler: Any) -> list[Any]:
    """Requests without a slot in stock SGLang: its queue, and those whose grammar is compiled."""
    return [*scheduler.waiting_queue, *scheduler.grammar_manager.grammar_queue]


def stock_holding(scheduler: Any) -> list[Any]:
    """Requests with a slot, between two steps of stock SGLang.

    They are in the running batch, in the batch that ran last (not merged into the former yet), or
    are the one half-prefilled request.
    """
    held: list[Any] = []
    for batch in (scheduler.running_batch, scheduler.last_batch):
        if batch is not None:
            held.extend(batch.reqs)
    if scheduler.chunked_req is not None:
        held.append(scheduler.chunked_req)
    return held


def _class_label(request: Any) -> str:
    terms = classify(request.priority, request.sampling_params.custom_params)
    return terms.request_class.name.lower()
