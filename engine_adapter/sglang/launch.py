"""Launch the forward pass of a step: safepoints armed, the monitor told, its time taken.

A pass that is stopped is undone here: the whole of it, or the requests that were cut out.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import torch
from sglang.srt.managers.utils import GenerationBatchResult

from coserve_kernels.page_shape import NUM_STAGING, STAGING_BYTES
from engine_adapter.scheduling.derive import safepoint_groups
from engine_adapter.scheduling.plan import RunningStep, SafepointMode
from engine_adapter.scheduling.snapshot import link_wait_s
from engine_adapter.sglang.actuate import Actuator
from engine_adapter.sglang.counters import Counters, PassesInFlight, PassGap
from engine_adapter.sglang.cuda_pass import device_clock, host_computes
from engine_adapter.sglang.live_requests import LaunchedStep
from engine_adapter.sglang.monitor import Monitor
from engine_adapter.sglang.safepoints import Safepoints, StepStopped
from engine_adapter.sglang.snapshot import SnapshotTaker
from engine_adapter.sglang.versions.installed import seam

if TYPE_CHECKING:
    from sglang.srt.managers.scheduler import Scheduler


STAGED_BYTES = NUM_STAGING * STAGING_BYTES


class StoppedResult(GenerationBatchResult):
    """Stands in SGLang's result queue for a pass that was thrown away."""


class Launcher:
    """Launches passes of one scheduler.

    Attributes:
        device_clock: Takes the time of passes.
        pass_gap: Time between passes.
    """

    def __init__(
        self,
        scheduler: Scheduler,
        safepoints: Safepoints,
        snapshots: SnapshotTaker,
        actuator: Actuator,
        counters: Counters,
        monitor: Monitor | None,
        page_bytes: int,
    ) -> None:
        """Launch passes of this scheduler.

        Args:
            scheduler: SGLang's.
            safepoints: Where a pass may stop.
            snapshots: Has the targets; told the time between passes.
            actuator: Undoes what a stopped pass reserved.
            counters: Counts stops.
            monitor: Told what runs; None on ranks that receive nothing.
            page_bytes: Size of a host page.
        """
        self._safepoints = safepoints
        self._snapshots = snapshots
        self._actuator = actuator
        self._counters = counters
        self._monitor = monitor
        self._newest: LaunchedStep | None = None
        self._host_computes = host_computes(scheduler)
        self.device_clock = device_clock(scheduler)
        self.pass_gap = PassGap()
        self._in_flight = PassesInFlight()
        self._page_bytes = page_bytes

    def launch(self, step: LaunchedStep, run: Callable[[Any], Any]) -> RunningStep:
        """Run the step's pass; the monitor may stop it between layers.

        Args:
            step: Composed and not launched yet; its result is put there.
            run: SGLang's launch of a batch.
        """
        self._newest = step
        step.launched()
        is_dropping = self._arm(step) is SafepointMode.DROP
        step.started_at_s = time.monotonic()
        self.pass_gap.started(step.started_at_s)
        started, cpu_s = self.device_clock.start(), time.thread_time()
        running = self._running(step)
        if self._monitor is not None:
            self._monitor.publish(running)
        try:
            step.result = run(step.batch)
        except StepStopped as stop:
            self._note_stop(step, stop.layer)
            self._counters.aborts += 1
            self._undo(step, list(range(len(step.lives))))
            step.result = StoppedResult()
        except Exception as error:  # noqa: BLE001 - whose it is will be seen (`confine`)
            # Ended in between: the prefix tree has the slot that this pass was to write.
            step.is_final |= any(not seam.holds_kv(live.req) for live in step.lives)
            self.throw_away(step, error)
        else:
            if self._safepoints.dropped_at_layer is not None:
                self._note_stop(step, self._safepoints.dropped_at_layer)
                self._counters.drops += 1
                self._undo(step, step.offline_positions)
        finally:
            self._counters.step_cpu_s += time.thread_time() - cpu_s
            self._safepoints.disarm()
            if self._monitor is not None:
                self._monitor.retire()
        if isinstance(step.result, StoppedResult):
            self.over(step)
        step.measure = self.device_clock.stop(started)
        if is_dropping:
            step.gap = self.device_clock.gap()
        if self._host_computes:  # elsewhere the device works on while the host is in between
            self.pass_gap.ended(time.monotonic())
            self._snapshots.overhead_s = self.pass_gap.mean_s
        return running

    def throw_away(self, step: LaunchedStep, error: Exception) -> None:
        """Undo a launched step that raised, in its pass or when its tokens were sampled."""
        step.failure = error
        self._undo(step, list(range(len(step.lives))))
        step.result = StoppedResult()

    def relaying(self) -> None:
        """Tokens of the newest step are about to become the input of the next."""
        if self._newest is not None:
            self._newest.is_final = True

    def kept_positions(self, device: Any) -> torch.Tensor | None:
        """Batch positions whose sampled tokens are relayed; None if that is all of them.

        A cut decoding request computes the same token again: its input must stay where it is.
        """
        if self._safepoints.dropped_at_layer is None:
            return None
        return self._safepoints.kept_on_device(device)

    def over(self, step: LaunchedStep) -> None:
        """The result of a step is there: the device has gone on to the next."""
        if not self._host_computes:
            self._in_flight.over(step.plan.step_id, time.monotonic())

    def _begins_at_s(self, step: LaunchedStep) -> float:
        """A device computes what is in front of the pass first, and waits for its copies."""
        if self._host_computes:
            return step.started_at_s
        plan = step.plan
        pages = sum(order.num_pages for order in plan.restores)
        pages += sum(order.num_pages for order in plan.checkpoints)
        wait_s = link_wait_s(pages, self._page_bytes, STAGED_BYTES)
        return self._in_flight.launch(plan.step_id, step.started_at_s, plan.predicted_s, wait_s)

    def _running(self, step: LaunchedStep) -> RunningStep:
        plan, num_offline = step.plan, len(step.offline_positions)
        return RunningStep(
            step_id=plan.step_id,
            kind=plan.kind,
            started_at_s=self._begins_at_s(step),
            predicted_s=plan.predicted_s,
            num_offline_requests=num_offline,
            num_online_requests=len(step.lives) - num_offline,
            safepoints=plan.safepoints,
            queued_online_tokens=self._snapshots.waiting_online_tokens(),
            slo=self._snapshots.slo,
        )

    def _arm(self, step: LaunchedStep) -> SafepointMode:
        """Arm the pass as the plan has it, as far as its requests can be cut out; returns how."""
        mode, keep = step.plan.safepoints.mode, []
        if mode is not SafepointMode.NONE:
            offline = set(step.offline_positions)
            keep = [i for i in range(len(step.lives)) if i not in offline]
            if not offline or (mode is SafepointMode.ABORT and keep):
                mode = SafepointMode.NONE
            elif any(not seam.holds_kv(step.lives[i].req) for i in offline):
                # Ended by a result that was processed after the step was composed: the prefix tree
                # has the slot that this pass writes, so the pass must write all of it.
                mode = SafepointMode.NONE
            elif mode is SafepointMode.DROP and not keep:
                mode = SafepointMode.ABORT
            elif mode is SafepointMode.DROP and not _can_cut(step.batch):
                mode = SafepointMode.NONE
        safepoints = self._safepoints
        every, groups = safepoint_groups(
            step.plan.safepoints.interval_s,
            step.plan.predicted_s,
            safepoints.num_layers,
            safepoints.most_groups,
        )
        safepoints.arm(mode, step.plan.step_id, every, keep, groups)
        return mode

    def _undo(self, step: LaunchedStep, positions: list[int]) -> None:
        self._actuator.undo(step, positions)
        self._actuator.decode_requests.forget()

    def _note_stop(self, step: LaunchedStep, layer: int) -> None:
        step.stopped_at_layer = layer
        freed_at_s, raised_at_s = self._safepoints.freed_at_s, self._safepoints.word.raised_at_s
        step.freed_after_s = lambda: freed_at_s() - raised_at_s


def _can_cut(batch: Any) -> bool:
    """Requests can be cut out only where every per-request value of the pass is known to us."""
    masks = batch.sampling_info.return_sampling_masks
    return not (
        batch.return_logprob or batch.return_hidden_states or batch.has_grammar or any(masks or ())
    )


def leave_out(batch: Any, result: Any, kept: list[int]) -> None:
    """Make SGLang's result processing see only the kept requests.

    ``batch`` is a copy of its own with the overlap loop and no longer used without it.
    """
    if result.copy_done is not None:
        result.copy_done.synchronize()
    result.next_token_ids = result.next_token_ids[torch.tensor(kept, dtype=torch.int64)]
    batch.reqs = [batch.reqs[i] for i in kept]
