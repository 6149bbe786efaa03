"""SGLang's scheduler with co-serving in place of its batch choice.

One iteration of SGLang's loop, normal or overlapped, with what is ours marked::

    receive            * from the monitor's queue
    get_next_batch     * settle last step, reap aborted requests, snapshot, plan, check, actuate
    run_batch          * publish to the monitor, arm safepoints; a stop is undone here
    process results    * requests of a stopped step left out, outcome to the driver

Everything else, from tokenized input to streamed output, is SGLang's.
"""

from __future__ import annotations

import logging
import time
from typing import Any

import torch
from sglang.srt.managers.schedule_batch import NextBatchPlan
from sglang.srt.managers.utils import GenerationBatchResult

from engine_adapter.scheduling.derive import safepoint_layers
from engine_adapter.scheduling.plan import Outcome, SafepointMode
from engine_adapter.scheduling.request import Phase
from engine_adapter.sglang.actuate import actuate, settle, undo_positions
from engine_adapter.sglang.cuda_pass import host_computes
from engine_adapter.sglang.live_requests import LaunchedStep
from engine_adapter.sglang.queueing import QueueingScheduler
from engine_adapter.sglang.safepoints import StepStopped

logger = logging.getLogger(__name__)


class StoppedResult(GenerationBatchResult):
    """Stands in SGLang's result queue for a pass that was thrown away."""


class CoServingScheduler(QueueingScheduler):
    """Composes every step from a checked plan."""

    # --- compose ---------------------------------------------------------------------------

    def get_next_batch_to_run(self, running_batch: Any, last_batch: Any) -> Any:
        """Plan the next step and build its batch."""
        if self.runtime.profiler.is_measuring:
            self._measure()
        started_s, copied_s = time.thread_time(), self._copies_cpu_s()
        self._abort_on_waiting_timeout()
        self._abort_on_running_timeout(self.runtime.holding_view)
        if self._unsettled is not None:
            settle(self, self._unsettled)
            self._unsettled = None
        self.sync_queue()
        self.reap_aborted()
        self._note_parked(())
        step = self._plan_step() if len(self.runtime.requests) else None
        copied_s = self._copies_cpu_s() - copied_s
        self.runtime.counters.plan_cpu_s += time.thread_time() - started_s - copied_s
        if step is None and len(self.runtime.requests) and not self._has_pending_result():
            self.wait_for_work(0.005)
        self._next_step = step
        return NextBatchPlan(
            batch_to_run=step.batch if step else None, running_batch=self.runtime.holding_view
        )

    def _copies_cpu_s(self) -> float:
        return float(self.runtime.checkpointer.cpu_s + self.runtime.restorer.cpu_s)

    def _plan_step(self) -> LaunchedStep | None:
        plan = None
        if self.runtime.agreement.rank == 0:
            make_room = self.runtime.profiler.wants_room
            snapshot = self.runtime.pauses.apply(self.runtime.snapshots.take())
            plan = self.runtime.planner.begin(snapshot, make_room=make_room)
        plan = self.runtime.agreement.share(plan)
        step = actuate(self, plan)
        if step is not None:
            self.runtime.counters.parks += len(plan.parks)
            self._note_parked(plan.parks)
        return step

    def _note_parked(self, rids: tuple[str, ...]) -> None:
        """The newest step leaves these out."""
        self.runtime.parked = frozenset(rids)
        self.runtime.counters.parked_requests = len(self.runtime.parked)

    def _measure(self) -> None:
        """Run a cell of the profile unless a first token waits; switch when the last one is done.

        Every rank counts the same steps, and so runs the same cells at the same time.
        """
        waiting = any((req.priority or 0) >= 0 for req in self.waiting_queue)
        online = [live.request for live in self.runtime.requests if live.is_online]
        if waiting or any(request.phase is not Phase.DECODE for request in online):
            return
        if online and not self.runtime.profiler.is_turn_beside_online():
            return
        # Offline requests never leave the overlap loop without one; a cell must not wait for that.
        self.process_pending_results()
        self.runtime.profiler.run_next(beside_online=bool(online))
        self.runtime.adopt_profile()

    def process_pending_results(self) -> None:
        """Process launched results now instead of after the next launch.

        The loop skips its own turn when there is no last batch.
        """
        while self._has_pending_result():
            batch, result = self.result_queue.popleft()
            self.process_batch_result(batch, result)
            self.last_batch = None

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

    def _has_pending_result(self) -> bool:
        return bool(self.enable_overlap and self.result_queue)

    # --- run -------------------------------------------------------------------------------

    def run_batch(self, batch: Any, pp_proxy_tensors: Any = None) -> Any:
        """Run the composed step; the monitor may stop it between layers."""
        step = self._next_step
        if step is None or step.batch is not batch:  # not ours: a health probe of SGLang, a test
            return super().run_batch(batch, pp_proxy_tensors)
        self._next_step = None
        self._unsettled = step
        for live in step.lives:
            live.launched()
        self._arm(step)
        step.started_at_s = time.monotonic()
        self.runtime.pass_gap.started(step.started_at_s)
        started, cpu_s = self.runtime.device_clock.start(), time.thread_time()
        self.publish_step(step)
        try:
            result = super().run_batch(batch, pp_proxy_tensors)
        except StepStopped as stop:
            self._note_stop(step, stop.layer)
            self.runtime.counters.aborts += 1
            undo_positions(self, step, list(range(len(step.lives))))
            self.runtime.decode_requests.forget()
            result = StoppedResult()
        else:
            if self.runtime.safepoints.dropped_at_layer is not None:
                self._note_stop(step, self.runtime.safepoints.dropped_at_layer)
                self.runtime.counters.drops += 1
                undo_positions(self, step, step.offline_positions)
                self.runtime.decode_requests.forget()
        finally:
            self.runtime.counters.step_cpu_s += time.thread_time() - cpu_s
            self.runtime.safepoints.disarm()
            if self.monitor is not None:
                self.monitor.retire()
        step.measure = self.runtime.device_clock.stop(started)
        if host_computes(self):  # elsewhere the device works on while the host is in between
            self.runtime.pass_gap.ended(time.monotonic())
            self.runtime.snapshots.overhead_s = self.runtime.pass_gap.mean_s
        self._launched[batch.forward_iter] = step
        return result

    def _arm(self, step: LaunchedStep) -> None:
        mode, keep = step.plan.safepoints.mode, []
        if mode is not SafepointMode.NONE:
            offline = set(step.offline_positions)
            keep = [i for i in range(len(step.lives)) if i not in offline]
            if not offline or (mode is SafepointMode.ABORT and keep):
                mode = SafepointMode.NONE
            elif any(step.lives[i].req.kv is None for i in offline):
                # Ended by a result that was processed after the step was composed: the prefix tree
                # has the slot that this pass writes, so the pass must write all of it.
                mode = SafepointMode.NONE
            elif mode is SafepointMode.DROP and not keep:
                mode = SafepointMode.ABORT
            elif mode is SafepointMode.DROP and not _can_cut(step.batch):
                mode = SafepointMode.NONE
        every = safepoint_layers(
            step.plan.safepoints.interval_s,
            step.plan.predicted_s,
            self.runtime.safepoints.num_layers,
        )
        self.runtime.safepoints.arm(mode, step.plan.step_id, every, keep)

    def _note_stop(self, step: LaunchedStep, layer: int) -> None:
        step.stopped_at_layer = layer
        safepoints = self.runtime.safepoints
        # Not now: a pass that lost requests has gone on with the others.
        step.flag_to_stop_s = safepoints.gave_way_at_s - safepoints.word.raised_at_s
        self.runtime.counters.stopped(layer, step.flag_to_stop_s, len(step.offline_positions))

    def _relay_forward_payload(self, future_indices: Any, batch_result: Any) -> None:
        """Relay sampled tokens by request slot, but not those of requests that were cut out.

        A cut decoding request computes the same token again: its input must stay where it is.
        """
        if self.runtime.safepoints.dropped_at_layer is None:
            super()._relay_forward_payload(future_indices, batch_result)
            return
        kept = torch.tensor(self.runtime.safepoints.keep, device=future_indices.device)
        whole = batch_result.next_token_ids
        if isinstance(whole, torch.Tensor):
            batch_result.next_token_ids = whole[kept]
            super()._relay_forward_payload(future_indices[kept], batch_result)
            batch_result.next_token_ids = whole

    # --- results ---------------------------------------------------------------------------

    def process_batch_result(self, batch: Any, result: Any) -> None:
        """Hand the kept requests to SGLang and report the step."""
        step = self._launched.pop(batch.forward_iter, None)
        if step is None:
            super().process_batch_result(batch, result)
            return
        if step.offline_positions:
            self.runtime.isolation.offline_ran(time.monotonic())
        if isinstance(result, StoppedResult):
            self.maybe_send_health_check_signal()
            self._finish_step(step)
            return
        kept = step.kept_positions
        if step.dropped:
            _leave_out(batch, result, kept)
        middle = [s for i, s in enumerate(step.chunks) if s.middle and i not in step.dropped]
        self.output_streamer.skipped = frozenset(id(s.live.req) for s in middle)
        super().process_batch_result(batch, result)
        self.output_streamer.skipped = frozenset()
        now_s, slo = time.monotonic(), self.runtime.snapshots.slo
        for live in [step.lives[i] for i in kept]:
            live.processed()
            if live.is_online and len(live.req.output_ids) > live.request.output_tokens:
                times_s = now_s, live.request.arrival_at_s, live.last_token_at_s
                self.runtime.attained.token(*times_s)
                self.runtime.isolation.token(*times_s, slo)
                if live.last_token_at_s is not None:
                    step.online_gap_s = max(step.online_gap_s, now_s - live.last_token_at_s)
                else:
                    live.request.first_token_at_s = now_s
                live.last_token_at_s = now_s
            live.request.output_tokens = len(live.req.output_ids)
            if live.req.finished():
                self.learn_length(live)
                self.forget_request(live)
        self._finish_step(step)

    def _finish_step(self, step: LaunchedStep) -> None:
        step.measured_s = step.measure()
        counters = self.runtime.counters
        outcome = Outcome(
            step_id=step.plan.step_id,
            measured_s=step.measured_s,
            online_tokens=step.tokens(online=True),
            offline_tokens=step.tokens(online=False),
            stopped_at_layer=step.stopped_at_layer,
            dropped=tuple(step.lives[i].rid for i in sorted(step.dropped)),
            flag_to_stop_s=step.flag_to_stop_s,
            online_gap_s=step.online_gap_s,
            timing_valid=counters.is_warm and step.is_as_planned,
        )
        counters.steps += 1
        counters.online_tokens += outcome.online_tokens
        counters.offline_tokens += outcome.offline_tokens
        flex_tokens = step.flex_tokens()
        counters.flex_tokens += flex_tokens
        counters.recomputed_tokens += step.recomputed_tokens(online=False)
        counters.recomputed_online_tokens += step.recomputed_tokens(online=True)
        counters.step_s += step.measured_s
        counters.predicted_s += step.plan.predicted_s
        self.runtime.recent_steps.add(step, outcome, flex_tokens)
        if self.runtime.agreement.rank == 0:
            self.runtime.planner.end(outcome)


def _can_cut(batch: Any) -> bool:
    """Requests can be cut out only where every per-request value of the pass is known to us."""
    masks = batch.sampling_info.return_sampling_masks
    return not (
        batch.return_logprob or batch.return_hidden_states or batch.has_grammar or any(masks or ())
    )


def _leave_out(batch: Any, result: Any, kept: list[int]) -> None:
    """Make SGLang's result processing see only the kept requests.

    ``batch`` is a copy of its own with the overlap loop and no longer used without it.
    """
    if result.copy_done is not None:
        result.copy_done.synchronize()
    result.next_token_ids = result.next_token_ids[torch.tensor(kept, dtype=torch.int64)]
    batch.reqs = [batch.reqs[i] for i in kept]
