"""SGLang's scheduler with co-serving in place of its batch choice.

One iteration of SGLang's loop, normal or overlapped, with what is ours marked::

    receive            * from the monitor's queue
    get_next_batch     * settle last step, reap aborted requests, snapshot, plan, check, compose
    run_batch          * launch: publish to the monitor, arm safepoints; a stop is undone here
    process results    * requests of a stopped step left out, outcomes to the driver

Everything else, from tokenized input to streamed output, is SGLang's. SGLang assumes that a request
is waiting, in the running batch, or the one half-prefilled request: every method that relies on
that is replaced here, and learns about parked, half-prefilled and restoring requests.
"""

from __future__ import annotations

import dataclasses
import logging
import math
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
import zmq
from sglang.srt.managers.io_struct import SetInternalStateReqOutput
from sglang.srt.managers.schedule_batch import NextBatchPlan
from sglang.srt.managers.scheduler_components.output_streamer import SchedulerOutputStreamer
from sglang.srt.mem_cache.evict_policy import PriorityStrategy

from engine_adapter.coserving_levels import Ability, Coserving, Found
from engine_adapter.runtime_settings import OFF, read_settings
from engine_adapter.scheduling.isolation import Pauses
from engine_adapter.scheduling.plan import SafepointMode
from engine_adapter.scheduling.policies.settings import LEVEL_KNOB, PROFILE_KNOB, Level
from engine_adapter.scheduling.request import Phase
from engine_adapter.sglang.confine import Confinement
from engine_adapter.sglang.contract import (
    refuse_another_scheduler,
    refuse_unsupported_modes,
)
from engine_adapter.sglang.forms import limits_of_arguments, limits_of_model
from engine_adapter.sglang.launch import StoppedResult, leave_out
from engine_adapter.sglang.live_requests import (
    HoldingView,
    LaunchedStep,
    LiveRequests,
    PendingPrefill,
)
from engine_adapter.sglang.monitor import Monitor
from engine_adapter.sglang.planner import Planner, model_before_profile
from engine_adapter.sglang.port import EnginePort
from engine_adapter.sglang.profiler import Profiler
from engine_adapter.sglang.queueing import WaitingQueue
from engine_adapter.sglang.report import Reporter
from engine_adapter.sglang.safepoints import RankAgreement
from engine_adapter.sglang.scheduler import GRAMMAR_POLL_S, ReportingScheduler
from engine_adapter.sglang.settings import ending_in_one_sentence
from engine_adapter.sglang.versions.installed import seam

logger = logging.getLogger(__name__)
IDLE_POLL_S = 1.0


class CoServingScheduler(ReportingScheduler):
    """Composes every step from a checked plan.

    Attributes:
        monitor: Sees arrivals; None on ranks that receive nothing.
        execution: The engine as policies see it.
        planner: Asks the policy.
        profiler: Measures steps.
    """

    waiting_queue: Any
    ipc_channels: Any
    monitor: Monitor | None = None
    _composes = True
    _next_step: LaunchedStep | None = None

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        """Start SGLang's scheduler, then put the parts of co-serving beside it."""
        self.coserve_settings = settings = read_settings()
        server_args = args[0] if args else kwargs["server_args"]
        with ending_in_one_sentence():
            refuse_unsupported_modes(seam.resolved(server_args))
        self._launched: dict[int, LaunchedStep] = {}
        limits = list(limits_of_arguments(seam.resolved(server_args)))
        if not limits:
            seam.choose_tree()
        super().__init__(*args, **kwargs)
        limits += limits_of_model(self)
        if not Coserving.of(limits).can(Ability.STEPS):
            self._leave_to_sglang(limits)
            return
        self.result_queue: Any = ()
        with ending_in_one_sentence():
            refuse_another_scheduler(self)
            self._agreement = agreement = RankAgreement(self)
            self.execution = port = EnginePort(
                self,
                settings,
                limits,
                agreement,
                self.monitor,
                super().run_batch,
                self.process_pending_results,
            )
            self.coserving = port.coserving
            self._queue = WaitingQueue(self, port)
            self._confinement = Confinement(self, port.requests, port.counters)
            self._holding_view = show_requests(self, port.requests)
            self._pauses = Pauses(on=settings.isolation_pauses, share=settings.isolation_share)
            self.profiler = Profiler(self, settings, agreement, port.safepoints)
            self.planner = Planner(settings, port.counters, model_before_profile(), measuring=True)
            self.adopt_profile()
        if self.monitor is not None:
            self.monitor.start(
                port.safepoints.word, self.planner.at_arrival, port.tree.already_cached
            )

    def _leave_to_sglang(self, limits: list[Found]) -> None:
        """SGLang chooses the batches, with chat first in its queue; ours only reports.

        SGLang holds bound methods of this object already, so it stays of this class. The monitor
        never starts: its stand-in reads the socket.
        """
        self.coserving = Coserving.of(limits)
        self._composes = False
        logger.warning("coserve: level 0: %s", self.coserving.reasons["1"])
        monitor, self.monitor = self.monitor, None
        if monitor is not None:
            seam.hand_over_input(self, monitor.socket)
        self.init_idle_sleeper()
        # SGLang's other uses of priorities need a start with them.
        self.policy.enable_priority_scheduling = True

    # --- compose ---------------------------------------------------------------------------

    def get_next_batch_to_run(self, running_batch: Any, last_batch: Any) -> Any:
        """Plan the next step and build its batch."""
        if not self._composes:
            return ReportingScheduler.get_next_batch_to_run(self, running_batch, last_batch)
        port = self.execution
        if self.profiler.is_measuring:
            self._measure()
        if self._confinement.conclude():
            self.process_pending_results()
            self._queue.touched = True
        started_s, copied_s = time.thread_time(), port.copies_cpu_s
        seam.abort_timed_out(self, self._holding_view)
        port.settle()
        self._queue.sync()
        self._queue.reap_aborted()
        step = self._plan_step() if len(port.requests) else None
        copied_s = port.copies_cpu_s - copied_s
        port.counters.plan_cpu_s += time.thread_time() - started_s - copied_s
        if step is None and len(port.requests) and not self._has_pending_result():
            self.wait_for_work(0.005)
        self._next_step = step
        return NextBatchPlan(
            batch_to_run=step.batch if step else None, running_batch=self._holding_view
        )

    def _plan_step(self) -> LaunchedStep | None:
        plan = None
        if self._agreement.rank == 0:
            snapshot = self._pauses.apply(self.execution.snapshot())
            if self._confinement.is_searching:
                plan = self._confinement.next_part(snapshot)
            else:
                plan = self.planner.begin(snapshot, make_room=self.profiler.wants_room)
        step = self.execution.compose(self._agreement.share(plan))
        if step is not None and step.failure is not None:
            self._confinement.failed(step)
            return None
        self._confinement.ran(step)
        return step

    def _measure(self) -> None:
        """Run a cell of the profile unless a first token waits; switch when the last one is done.

        Every rank counts the same steps, and so runs the same cells at the same time.
        """
        waiting = any((req.priority or 0) >= 0 for req in self.waiting_queue)
        online = [live.request for live in self.execution.requests if live.is_online]
        if waiting or online:
            self.profiler.note_online()
        if waiting or any(request.phase is not Phase.DECODE for request in online):
            return
        beside_offline = len(self.execution.requests) > len(online)
        cell = self.profiler.choose(beside_online=bool(online), beside_offline=beside_offline)
        if cell is not None:
            # Offline requests never leave the overlap loop without one, and a cell must not wait.
            self.process_pending_results()
            self.profiler.run(cell)
        if not self.profiler.is_measuring:
            self.adopt_profile()

    def adopt_profile(self) -> None:
        """Plan with the chosen policy and the profile's model; derive the targets nobody set.

        Without a profile the plain policy goes on.
        """
        profile, slo = self.profiler.profile, self.profiler.slo()
        if profile is None or slo is None:
            return
        self.planner.use_model(profile.model())
        self.execution.snapshots.slo = slo
        logger.info(
            "coserve: policy %s, TTFT target %.0f ms, TBT target %.0f ms, profile %s",
            self.planner.policy_name,
            slo.ttft_s * 1000.0,
            slo.tbt_s * 1000.0,
            self.profiler.state,
        )

    def is_disable_overlap_for_batch(self, batch: Any, last_batch: Any) -> bool:
        """Hand tokens of online requests out before a pass that may be stopped is launched.

        Its launch takes as long as the pass: safepoints keep the host close to the device.
        """
        step = self._next_step
        is_armed = step is not None and step.plan.safepoints.mode is not SafepointMode.NONE
        if is_armed and self._has_pending_result():
            pending = self._launched.get(self.result_queue[0][0].forward_iter)
            if pending is not None and len(pending.offline_positions) < len(pending.lives):
                return True
        return bool(super().is_disable_overlap_for_batch(batch, last_batch))

    # --- run -------------------------------------------------------------------------------

    def run_batch(self, batch: Any, pp_proxy_tensors: Any = None) -> Any:
        """Run the composed step; the monitor may stop it between layers."""
        step = self._next_step
        if step is None or step.batch is not batch:  # not ours: a health probe of SGLang, a test
            return super().run_batch(batch, pp_proxy_tensors)
        self._next_step = None
        self.execution.launch(step)
        self._launched[batch.forward_iter] = step
        if step.failure is not None:
            self._confinement.failed(step)
        return step.result

    def launch_batch_sample_if_needed(self, batch_result: Any, cur_batch: Any) -> Any:
        """Sample where that waits for the result of the step before."""
        try:
            return super().launch_batch_sample_if_needed(batch_result, cur_batch)
        except Exception as error:
            step = self._launched.get(cur_batch.forward_iter)
            if step is None:
                raise
            self.execution.launcher.throw_away(step, error)
            self.result_queue[-1] = (self.result_queue[-1][0], step.result)
            self._confinement.failed(step)
            return step.result

    def _relay_forward_payload(self, *args: Any) -> None:
        """Relay sampled tokens by request slot, but not those of requests that were cut out."""
        if not self._composes:
            super()._relay_forward_payload(*args)
            return
        *before, future_indices, batch_result = args  # the batch comes first in newer releases
        self.execution.launcher.relaying()
        kept = self.execution.launcher.kept_positions(future_indices.device)
        if kept is None:
            super()._relay_forward_payload(*args)
            return
        whole = batch_result.next_token_ids
        if isinstance(whole, torch.Tensor):
            batch_result.next_token_ids = whole[kept]
            super()._relay_forward_payload(*before, future_indices[kept], batch_result)
            batch_result.next_token_ids = whole

    # --- results ---------------------------------------------------------------------------

    def process_batch_result(self, batch: Any, result: Any) -> None:
        """Hand the kept requests to SGLang and report the step."""
        step = self._launched.pop(batch.forward_iter, None)
        if step is None:
            super().process_batch_result(batch, result)
            return
        finished = self.execution.finished_steps
        finished.arriving(step)
        if isinstance(result, StoppedResult):
            self.maybe_send_health_check_signal()
        else:
            if step.dropped:
                leave_out(batch, result, step.kept_positions)
            with self.output_streamer.leaving_out(step.unfinished_prompts):
                super().process_batch_result(batch, result)
            finished.delivered(step)
            self._confinement.passed()
        finished.finish(step)
        self.execution.launcher.over(step)
        for outcome in self.execution.outcomes():
            if self._agreement.rank == 0:
                self.planner.end(outcome)

    def process_pending_results(self) -> None:
        """Process launched results now instead of after the next launch.

        The loop skips its own turn when there is no last batch.
        """
        while self._has_pending_result():
            batch, result = self.result_queue.popleft()
            self.process_batch_result(batch, result)
            self.last_batch = None

    def _has_pending_result(self) -> bool:
        return bool(self.enable_overlap and self.result_queue)

    # --- arrivals, aborts, pauses ----------------------------------------------------------

    def init_ipc_channels(self, port_args: Any) -> None:
        """Let the monitor own the input socket."""
        super().init_ipc_channels(port_args)
        socket = self.ipc_channels.recv_from_tokenizer
        if socket is not None:
            self.monitor = Monitor(socket)
            seam.hand_over_input(self, self.monitor.stand_in)

    def _add_request_to_queue(self, req: Any, is_retracted: bool = False) -> None:
        if not self._composes and req.priority is None:  # a probe of SGLang's own
            req.priority = 0
        super()._add_request_to_queue(req, is_retracted)
        if self._composes:
            self._queue.touched = True

    def abort_request(self, recv_req: Any) -> None:
        """Abort by id; the view shows SGLang parked and half-prefilled requests too."""
        super().abort_request(recv_req)
        if self._composes:
            self._queue.touched = True

    def pause_generation(self, recv_req: Any) -> None:
        """Pause; in retract mode every request gives its pages up first."""
        if recv_req.mode != "retract" or not self._composes:
            super().pause_generation(recv_req)
            return
        self._engine_paused = True
        self.process_pending_results()
        self.execution.settle()
        self.execution.give_up_all()
        self.last_batch = None
        self.cur_batch_for_debug = None
        self.metrics_reporter.last_gen_throughput = 0.0
        self.kv_events_publisher.publish_kv_events()

    def flush_cache(self, empty_cache: bool = True) -> bool:
        """Flush when idle; the decode batch kept for reuse points at freed slots afterwards."""
        flushed = super().flush_cache(empty_cache)
        if flushed and self._composes:
            self.execution.actuator.decode_requests.forget()
        return bool(flushed)

    # --- idle and reports ------------------------------------------------------------------

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
        if not self._composes:
            ReportingScheduler.maybe_sleep_on_idle(self)
            return
        if self.profiler.is_measuring:
            return
        compiling = self.grammar_manager.has_waiting_grammars()
        self.wait_for_work(GRAMMAR_POLL_S if compiling else IDLE_POLL_S)

    def init_idle_sleeper(self) -> None:
        """No poller of SGLang's: see :meth:`maybe_sleep_on_idle`."""
        if not self._composes:
            ReportingScheduler.init_idle_sleeper(self)
            return
        self.idle_sleeper = None

    def set_internal_state(self, recv_req: Any) -> Any:
        """SGLang's knobs and ours: the level by its place in `Level`, and a profile measured anew.

        SGLang takes numbers alone.
        """
        if recv_req.server_args.pop(PROFILE_KNOB, None) is not None:
            return SetInternalStateReqOutput(updated=self._composes and self.profiler.begin_anew())
        wanted = recv_req.server_args.pop(LEVEL_KNOB, None)
        if wanted is None:
            return super().set_internal_state(recv_req)
        levels = list(Level)
        if not self._composes or self.planner.level is None or wanted not in range(len(levels)):
            return SetInternalStateReqOutput(updated=False)
        self.planner.use_level(levels[int(wanted)])
        logger.info("the level is %s from the next step on", self.planner.level)
        return SetInternalStateReqOutput(updated=True)

    def coserve_state(self) -> dict[str, Any]:
        """Counters and gauges as plain data."""
        if not self._composes:
            return {"policy": OFF, **self.coserving.to_plain()}
        return Reporter(self.execution, self.planner, self.profiler, self._pauses).to_plain()


# --- What SGLang's own parts see of our requests: each one that holds a slot, once.


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


def show_requests(scheduler: CoServingScheduler, requests: LiveRequests) -> HoldingView:
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
