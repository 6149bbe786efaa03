"""Which requests an engine holds, by id: what the service needs to prove that an abort worked.

SGLang answers 200 to every abort and lists its requests nowhere.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any


def live_ids(scheduler: Any) -> dict[str, list[str]]:
    """Ids of the scheduler's requests: `waiting` hold no slot, `running` do.

    Reads the places where stock SGLang keeps a request between two steps: the waiting queue, the
    queue for grammars being compiled, the running batch, the batch that ran last
    and the one half-prefilled request. A finished request whose batch has not been filtered yet is not live.
    """
    waiting = [*scheduler.waiting_queue, *_grammar_queue(scheduler)]
    running: list[Any] = []
    for batch in (scheduler.running_batch, scheduler.last_batch):
        if batch is not None:
            running.extend(batch.reqs)
    if scheduler.chunked_req is not None:
        running.append(scheduler.chunked_req)
    held = _ids(running)
    return {"waiting": [rid for rid in _ids(waiting) if rid not in held], "running": held}


def _grammar_queue(scheduler: Any) -> list[Any]:
    manager = getattr(scheduler, "grammar_manager", None)
    return list(getattr(manager, "grammar_queue", ()))


def _ids(requests: Iterable[Any]) -> list[str]:
    return list(dict.fromkeys(request.rid for request in requests if not request.finished()))
