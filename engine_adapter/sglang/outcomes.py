"""From processed results to outcomes: what steps did, and what their requests got.

SGLang hands results out one step later than it launches them, with the overlap loop.
"""

from __future__ import annotations

import time
from typing import Any

from sglang.srt.managers.schedule_batch import FINISH_ABORT

from engine_adapter.scheduling.answer_lengths import Asked, LengthPredictor
from engine_adapter.scheduling.isolation import AttainedLatency, Isolation, Tokens
from engine_adapter.scheduling.plan import Outcome
from engine_adapter.sglang.actuate import Actuator
from engine_adapter.sglang.counters import Counters, PassGap, RecentSteps
from engine_adapter.sglang.live_requests import LaunchedStep, LiveRequest
from engine_adapter.sglang.snapshot import SnapshotTaker


class FinishedSteps:
    """Collects the outcomes of steps whose results were processed.

    Attributes:
        attained: Newest latencies of online requests.
        isolation: What online requests get with and without offline work.
        recent_steps: The newest steps.
    """

    def __init__(
        self,
        actuator: Actuator,
        snapshots: SnapshotTaker,
        counters: Counters,
        lengths: LengthPredictor | None,
    ) -> None:
        """Start with no outcome.

        Args:
            actuator: Forgets requests that are over.
            snapshots: Has the targets.
            counters: Counts what was done.
            lengths: Learns the lengths of answers, for a policy that asks.
        """
        self._actuator = actuator
        self._snapshots = snapshots
        self._counters = counters
        self._lengths = lengths
        self._known: list[Outcome] = []
        self._armed_gap = PassGap()
        self.attained = AttainedLatency()
        self.isolation = Isolation()
        self.recent_steps = RecentSteps()

    def arriving(self, step: LaunchedStep) -> None:
        """The result of a step is about to be processed."""
        if step.offline_positions:
            self.isolation.offline_ran(time.monotonic())

    def delivered(self, step: LaunchedStep) -> None:
        """SGLang has processed the result: note who got a token, and forget who ended."""
        now_s = time.monotonic()
        got = Tokens(now_s)
        for live in step.processed():
            num_tokens = len(live.req.output_ids)
            if live.is_online and num_tokens > live.request.output_tokens:
                if live.last_token_at_s is None:
                    got.arrived_at_s.append(live.request.arrival_at_s)
                    live.request.first_token_at_s = now_s
                else:
                    got.last_at_s.append(live.last_token_at_s)
                live.last_token_at_s = now_s
            live.request.output_tokens = num_tokens
            if live.req.finished():
                self._learn_length(live)
                self._actuator.forget(live)
        step.online_gap_s = now_s - min(got.last_at_s, default=now_s)
        self.attained.tokens(got)
        self.isolation.tokens(got, self._snapshots.slo)

    def finish(self, step: LaunchedStep) -> None:
        """Nothing more will become known of this step."""
        step.measured_s = step.measure()
        if step.gap is not None:
            self._armed_gap.add(step.gap())
            self._snapshots.armed_gap_s = self._armed_gap.mean_s
        counters = self._counters
        if step.stopped_at_layer is not None:
            step.flag_to_stop_s = step.freed_after_s()
            counters.stopped(
                step.stopped_at_layer, step.flag_to_stop_s, len(step.offline_positions)
            )
        kept = step.kept_tokens()
        outcome = Outcome(
            step_id=step.plan.step_id,
            measured_s=step.measured_s,
            online_tokens=kept.online,
            offline_tokens=kept.offline,
            stopped_at_layer=step.stopped_at_layer,
            dropped=tuple(step.lives[i].rid for i in sorted(step.dropped)),
            flag_to_stop_s=step.flag_to_stop_s,
            online_gap_s=step.online_gap_s,
            timing_valid=counters.is_warm and step.is_as_planned and step.failure is None,
        )
        counters.steps += 1
        counters.online_tokens += kept.online
        counters.offline_tokens += kept.offline
        counters.flex_tokens += kept.flex
        counters.recomputed_tokens += kept.recomputed_offline
        counters.recomputed_online_tokens += kept.recomputed_online
        counters.step_s += step.measured_s
        counters.predicted_s += step.plan.predicted_s
        self.recent_steps.add(step, outcome, kept.flex)
        self._known.append(outcome)

    def take(self) -> list[Outcome]:
        """Outcomes that became known since the last call, oldest first."""
        known, self._known = self._known, []
        return known

    def to_plain(self) -> dict[str, Any]:
        """What online requests attained, and the newest steps."""
        return {
            "attained": self.attained.to_plain(self._snapshots.slo),
            "recent_steps": self.recent_steps.to_plain(time.monotonic()),
        }

    def _learn_length(self, live: LiveRequest) -> None:
        """A request ended: its length is known. One that was aborted says nothing."""
        req = live.req
        if self._lengths is not None and not isinstance(req.finished_reason, FINISH_ABORT):
            asked = Asked.about(live.request, req.sampling_params.temperature)
            self._lengths.learn(asked, len(req.output_ids))
