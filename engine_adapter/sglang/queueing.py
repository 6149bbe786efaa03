"""The waiting queue: arrivals become live requests, those that left it are forgotten.

SGLang removes requests from its queue in several places (aborts, timeouts, limits), so the queue is
compared with the table instead of every place being followed.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from engine_adapter.scheduling.answer_lengths import Asked
from engine_adapter.scheduling.request import Request
from engine_adapter.sglang.confine import fail_alone
from engine_adapter.sglang.live_requests import LiveRequest, classify
from engine_adapter.sglang.port import EnginePort
from engine_adapter.sglang.versions.installed import seam

if TYPE_CHECKING:
    from sglang.srt.managers.scheduler import Scheduler


class WaitingQueue:
    """Keeps the table of live requests in line with SGLang's queue.

    Attributes:
        touched: Something may have changed that the queue's length does not show.
    """

    def __init__(self, scheduler: Scheduler, port: EnginePort) -> None:
        """Watch the queue of this scheduler."""
        self._scheduler = scheduler
        self._requests = port.requests
        self._actuator = port.actuator
        self._counters = port.counters
        self._tree = port.tree
        self._lengths = port.lengths
        self._monitor = port.monitor
        self.touched = False

    def sync(self) -> None:
        """Bring the table in line with SGLang's waiting queue."""
        s = self._scheduler
        if s.grammar_manager.has_waiting_grammars():
            for req in s.grammar_manager.get_ready_grammar_requests():
                s._add_request_to_queue(req)
        if len(s.waiting_queue) == self._requests.roster.num_waiting and not self.touched:
            return
        self.touched = False
        # The request, not its id: in a pause an aborted id may be sent again before this looks.
        waiting = {id(req) for req in s.waiting_queue}
        gone = [
            live
            for live in self._requests
            if not live.request.holds_slot and id(live.req) not in waiting
        ]
        for live in gone:
            self._actuator.forget(live)
        refused = []
        for req in s.waiting_queue:
            if req.to_finish is not None:
                refused.append(req)
            elif req.rid not in self._requests:
                try:
                    self._requests.add(LiveRequest(req, self._request_of(req)))
                except Exception as error:  # noqa: BLE001 - nothing is held for it yet
                    fail_alone(req, error)
                    self._counters.failed_requests += 1
                    refused.append(req)
        if refused:
            self._answer_refused(refused)

    def reap_aborted(self) -> None:
        """End aborted requests that no launched step will end, without another forward pass."""
        aborted = [
            live
            for live in self._requests.holding.values()
            if live.req.to_finish is not None and not live.pending
        ]
        for live in aborted:
            req = live.req
            req.finished_reason, req.to_finish = req.to_finish, None
            seam.release(req, self._scheduler.tree_cache)
            # An ordinary last output: SGLang's abort message has no usage of the prompt.
            self._scheduler.output_streamer.stream_output([req], req.return_logprob)
            self._actuator.forget(live)
            self._counters.reaped_requests += 1

    def _request_of(self, req: Any) -> Request:
        terms = classify(req.priority, req.sampling_params.custom_params)
        now_s = self._monitor.take_arrival(req.rid) if self._monitor else time.monotonic()
        mixable = not (req.return_logprob or req.return_hidden_states or req.input_embeds)
        request = Request(
            rid=req.rid,
            request_class=terms.request_class,
            prompt_tokens=len(req.origin_input_ids),
            fill_tokens=len(req.origin_input_ids) + len(req.output_ids),
            max_output_tokens=req.sampling_params.max_new_tokens,
            arrival_at_s=now_s,
            deadline_at_s=now_s + terms.deadline_in_s,
            batch_id=terms.batch_id,
            cached_tokens=self._tree.hit(req),
            can_mix=mixable,
        )
        if self._lengths is not None:
            asked = Asked.about(request, req.sampling_params.temperature)
            request.expected_output_tokens = self._lengths.expect(asked)
        return request

    def _answer_refused(self, refused: list[Any]) -> None:
        """Requests SGLang refused at the door (too long, bad grammar): answer without a pass.

        Requests that were aborted and then retracted by a pause are among them.
        """
        s, ids = self._scheduler, {id(req) for req in refused}
        s.waiting_queue = [req for req in s.waiting_queue if id(req) not in ids]
        for req in refused:
            live = self._requests.get(req.rid)
            if live is not None and live.req is req:
                self._actuator.forget(live)
            req.finished_reason, req.to_finish = req.to_finish, None
            s.output_streamer.stream_output([req], req.return_logprob)
