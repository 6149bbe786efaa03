"""What SGLang's own parts see of our requests: each one that holds a slot, once."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from sglang.srt.managers.scheduler_components.output_streamer import SchedulerOutputStreamer
from sglang.srt.mem_cache.evict_policy import PriorityStrategy

from engine_adapter.sglang.live_requests import HoldingView, LiveRequests, PendingPrefill

if TYPE_CHECKING:
    from sglang.srt.managers.scheduler import Scheduler


class RequestStreamer(SchedulerOutputStreamer):
    """Streams the requests of a batch, but for some.

    SGLang has one half-prefilled request at a time and its streamer can skip one; co-serving has
    several.
    """

    _silent: frozenset[str] = frozenset()

    @contextmanager
    def leaving_out(self, rids: frozenset[str]) -> Iterator[None]:
        """Stream nothing of these requests meanwhile."""
        self._silent = rids
        try:
            yield
        finally:
            self._silent = frozenset()

    def stream_output(
        self, reqs: list[Any], return_logprob: bool, skip_req: Any | None = None
    ) -> None:
        """Stream the requests that are not left out."""
        shown = [req for req in reqs if req.rid not in self._silent] if self._silent else reqs
        super().stream_output(shown, return_logprob, skip_req)


def show_requests(scheduler: Scheduler, requests: LiveRequests) -> HoldingView:
    """Point SGLang's observers at every request that holds a slot, once each."""
    view = scheduler.running_batch = HoldingView(requests)
    checker = scheduler.invariant_checker
    checker.get_running_batch = lambda: view
    checker.get_last_batch = lambda: view
    scheduler.load_inquirer = dataclasses.replace(
        scheduler.load_inquirer, get_chunked_req=lambda: PendingPrefill(requests)
    )
    old = scheduler.output_streamer
    streamer = RequestStreamer(**{f.name: getattr(old, f.name) for f in dataclasses.fields(old)})
    scheduler.output_streamer = streamer
    scheduler.batch_result_processor = dataclasses.replace(
        scheduler.batch_result_processor, output_streamer=streamer
    )
    # Offline requests carry negative priorities: their prefixes are evicted before online ones.
    scheduler.tree_cache.eviction_strategy = PriorityStrategy()
    return view
