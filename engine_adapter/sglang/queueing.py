"""What surrounds the choice of a batch: queue, aborts, pauses, idling, reports.

SGLang assumes that a request is waiting, in the running batch, or the one half-prefilled request.
Here every method that relies on that learns about parked, half-prefilled and restoring requests.
"""

from __future__ import annotations

import dataclasses
import math
import time
from typing import Any

import zmq
from sglang.srt.managers.schedule_batch import FINISH_ABORT
from sglang.srt.mem_cache.base_prefix_cache import MatchPrefixParams
from sglang.srt.mem_cache.common import release_kv_cache
from sglang.srt.mem_cache.radix_cache import RadixKey

from engine_adapter.scheduling.answer_lengths import Asked
from engine_adapter.scheduling.plan import RunningStep
from engine_adapter.scheduling.request import Request
from engine_adapter.sglang.actuate import retract_requests, settle
from engine_adapter.sglang.contract import refuse_unsupported_modes, refuse_unsupported_pools
from engine_adapter.sglang.live_requests import LaunchedStep, LiveRequest, classify
from engine_adapter.sglang.runtime import Runtime
from engine_adapter.sglang.scheduler import GRAMMAR_POLL_S, ReportingScheduler
from engine_adapter.sglang.settings import ending_in_one_sentence, read_settings

# --- How much of a prompt the prefix tree holds, asked without touching the tree.
#
# SGLang's own match splits nodes and notes accesses, so only the scheduler's thread may call it.
# The monitor asks from a thread of its own, while a step runs, to charge an arrival only for what
# it has still to compute. The walk here reads and changes nothing. The scheduler may change the
# tree in between: an answer is then off by one node, which costs at most one needless or one
# missing stop.


def cached_tokens(tree: Any, key: Any) -> int:
    """Tokens at the front of ``key`` whose KV the tree holds.

    Args:
        tree: SGLang's ``RadixCache``.
        key: A ``RadixKey``; its limit is kept.
    """
    key = key.page_aligned(tree.page_size)
    node, found = tree.root_node, 0
    while len(key) > 0:
        child = node.children.get(key.child_key(tree.page_size))
        if child is None:
            break
        held = child.key
        matched = held.match(key, page_size=tree.page_size)
        found += matched
        if matched < len(held):
            break
        key = key[matched:]
        node = child
    return found


# --- The scheduler.

IDLE_POLL_S = 1.0
# A look into the prefix tree takes some 50 us, and the next step waits for it.
HITS_AT_ONCE = 8


class QueueingScheduler(ReportingScheduler):
    """Keeps SGLang's bookkeeping true for requests SGLang does not know."""

    waiting_queue: Any
    ipc_channels: Any
    monitor: Any = None
    runtime: Runtime
    _queue_touched = False

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        """Start SGLang's scheduler, then put the runtime's parts beside it."""
        self.coserve_settings = read_settings()
        server_args = args[0] if args else kwargs["server_args"]
        with ending_in_one_sentence():
            refuse_unsupported_modes(server_args)
        super().__init__(*args, **kwargs)
        self._launched: dict[int, LaunchedStep] = {}
        self._unsettled: LaunchedStep | None = None
        self._next_step: LaunchedStep | None = None
        self.result_queue: Any = ()
        with ending_in_one_sentence():
            refuse_unsupported_pools(self)
            Runtime(self)

    # --- arrivals --------------------------------------------------------------------------

    def sync_queue(self) -> None:
        """Bring the table in line with SGLang's waiting queue.

        SGLang removes requests from the queue in several places (aborts, timeouts, limits), so
        the queue is compared instead of every place being followed.
        """
        if self.grammar_manager.has_waiting_grammars():
            for req in self.grammar_manager.get_ready_grammar_requests():
                self._add_request_to_queue(req)
        roster = self.runtime.requests.roster
        if len(self.waiting_queue) == roster.num_waiting and not self._queue_touched:
            return
        self._queue_touched = False
        # The request, not its id: in a pause an aborted id may be sent again before this looks.
        waiting = {id(req) for req in self.waiting_queue}
        gone = [
            live
            for live in self.runtime.requests
            if not live.request.holds_slot and id(live.req) not in waiting
        ]
        for live in gone:
            self.forget_request(live)
        refused = []
        for req in self.waiting_queue:
            if req.to_finish is not None:
                refused.append(req)
            elif req.rid not in self.runtime.requests:
                self.runtime.requests.add(LiveRequest(req, self._request_of(req)))
        if refused:
            self._answer_refused(refused)

    def _add_request_to_queue(self, req: Any, is_retracted: bool = False) -> None:
        super()._add_request_to_queue(req, is_retracted)
        self._queue_touched = True

    def _request_of(self, req: Any) -> Request:
        terms = classify(req.priority, req.sampling_params.custom_params)
        now_s = self.monitor.take_arrival(req.rid) if self.monitor else time.monotonic()
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
            cached_tokens=self._expected_hit(req),
            can_mix=mixable,
        )
        if (lengths := self.runtime.lengths) is not None:
            asked = Asked.about(request, req.sampling_params.temperature)
            request.expected_output_tokens = lengths.expect(asked)
        return request

    def _expected_hit(self, req: Any) -> int:
        key = _prompt_key(req.origin_input_ids, req.extra_key)
        return len(self.tree_cache.match_prefix(MatchPrefixParams(key=key)).device_indices)

    def expect_hits_again(self, request: Request) -> None:
        """A request's prefix hit has grown since it came: those behind it may share the prefix.

        Requests of a batch come together, often before the first of them is computed. Without this
        each would lose its first chunk to a plan that counts on computing the prefix once more.
        """
        for other in self.runtime.requests.roster.waiting_like(request, HITS_AT_ONCE):
            other.cached_tokens = self._expected_hit(self.runtime.requests.by_id[other.rid].req)

    def _answer_refused(self, refused: list[Any]) -> None:
        """Requests SGLang refused at the door (too long, bad grammar): answer without a pass.

        Requests that were aborted and then retracted by a pause are among them.
        """
        ids = {id(req) for req in refused}
        self.waiting_queue = [req for req in self.waiting_queue if id(req) not in ids]
        for req in refused:
            live = self.runtime.requests.get(req.rid)
            if live is not None and live.req is req:
                self.forget_request(live)
            req.finished_reason, req.to_finish = req.to_finish, None
            self.output_streamer.stream_output([req], req.return_logprob)

    # --- ends ------------------------------------------------------------------------------

    def learn_length(self, live: LiveRequest) -> None:
        """A request ended: its length is known. One that was aborted says nothing."""
        req, lengths = live.req, self.runtime.lengths
        if lengths is not None and not isinstance(req.finished_reason, FINISH_ABORT):
            asked = Asked.about(live.request, req.sampling_params.temperature)
            lengths.learn(asked, len(req.output_ids))

    def forget_request(self, live: LiveRequest) -> None:
        """A request is over: release what the host still holds of it."""
        if self.runtime.requests.get(live.rid) is live:
            self.runtime.checkpointer.forget(live)
            self.runtime.requests.forget(live.rid)

    def reap_aborted(self) -> None:
        """End aborted requests that no launched step will end, without another forward pass."""
        aborted = [
            live
            for live in self.runtime.requests.holding.values()
            if live.req.to_finish is not None and not live.pending
        ]
        for live in aborted:
            req = live.req
            req.finished_reason, req.to_finish = req.to_finish, None
            release_kv_cache(req, self.tree_cache, is_insert=False)
            # An ordinary last output: SGLang's abort message has no usage of the prompt.
            self.output_streamer.stream_output([req], req.return_logprob)
            self.forget_request(live)
            self.runtime.counters.reaped_requests += 1

    def abort_request(self, recv_req: Any) -> None:
        """Abort by id; the view shows SGLang parked and half-prefilled requests too."""
        super().abort_request(recv_req)
        self._queue_touched = True

    def pause_generation(self, recv_req: Any) -> None:
        """Pause; in retract mode every request gives its pages up first."""
        if recv_req.mode != "retract":
            super().pause_generation(recv_req)
            return
        self._engine_paused = True
        self.process_pending_results()
        if self._unsettled is not None:
            settle(self, self._unsettled)
            self._unsettled = None
        retract_requests(self, tuple(self.runtime.requests.holding))
        # Weights may change in such a pause: SGLang promises that all KV is computed again.
        for live in self.runtime.requests:
            self.runtime.checkpointer.forget(live)
        self.last_batch = None
        self.cur_batch_for_debug = None
        self.metrics_reporter.last_gen_throughput = 0.0
        self.kv_events_publisher.publish_kv_events()

    def flush_cache(self, empty_cache: bool = True) -> bool:
        """Flush when idle; the decode batch kept for reuse points at freed slots afterwards."""
        flushed = super().flush_cache(empty_cache)
        if flushed:
            self.runtime.decode_requests.forget()
        return bool(flushed)

    # --- idle and reports ------------------------------------------------------------------

    def init_ipc_channels(self, port_args: Any) -> None:
        """Let the monitor own the input socket."""
        super().init_ipc_channels(port_args)
        socket = self.ipc_channels.recv_from_tokenizer
        if socket is not None:
            from engine_adapter.sglang.monitor import Monitor

            self.monitor = Monitor(socket, self.judge, self.already_cached)
            self.ipc_channels = dataclasses.replace(
                self.ipc_channels, recv_from_tokenizer=self.monitor.stand_in
            )

    def already_cached(self, request: Any) -> int:
        """Tokens of an arrival's prompt that the tree holds; runs on the monitor's thread."""
        ids = request.input_ids
        if not ids or request.input_embeds is not None:
            return 0
        return cached_tokens(self.tree_cache, _prompt_key(ids, request.extra_key))

    def judge(self, arrival: Any, step: RunningStep) -> Any:
        """Ask the policy about an arrival; runs on the monitor's thread."""
        return self.runtime.planner.at_arrival(arrival, step)

    def publish_step(self, step: LaunchedStep) -> None:
        """Tell the monitor what runs from now on."""
        if self.monitor is None:
            return
        plan = step.plan
        num_offline = len(step.offline_positions)
        self.monitor.publish(
            RunningStep(
                step_id=plan.step_id,
                kind=plan.kind,
                started_at_s=step.started_at_s,
                predicted_s=plan.predicted_s,
                num_offline_requests=num_offline,
                num_online_requests=len(step.lives) - num_offline,
                safepoints=plan.safepoints,
                queued_online_tokens=self.runtime.snapshots.waiting_online_tokens(),
                slo=self.runtime.snapshots.slo,
            )
        )

    def wait_for_work(self, timeout_s: float) -> None:
        """Sleep until a message arrives on either socket, or the time is over."""
        if self.monitor is None:
            return
        poller = zmq.Poller()
        poller.register(self.monitor.wake_fd, zmq.POLLIN)
        if self.ipc_channels.recv_from_rpc is not None:
            poller.register(self.ipc_channels.recv_from_rpc, zmq.POLLIN)
        if self.monitor.has_messages:
            return
        poller.poll(math.ceil(timeout_s * 1000.0))
        self.monitor.clear_wake()

    def maybe_sleep_on_idle(self) -> None:
        """Idle without spinning: SGLang's poller cannot wait on the monitor's queue."""
        if self.runtime.profiler.is_measuring:
            return
        compiling = self.grammar_manager.has_waiting_grammars()
        self.wait_for_work(GRAMMAR_POLL_S if compiling else IDLE_POLL_S)

    def init_idle_sleeper(self) -> None:
        """No poller of SGLang's: see :meth:`maybe_sleep_on_idle`."""
        self.idle_sleeper = None

    def coserve_state(self) -> dict[str, Any]:
        """Counters and gauges as plain data."""
        return self.runtime.reporter.to_plain()


def _prompt_key(ids: Any, extra_key: str | None) -> RadixKey:
    """What is looked up of a prompt: its last token is always computed."""
    return RadixKey(token_ids=ids, extra_key=extra_key, limit=len(ids) - 1)
