"""BROS: real-time requests by residual time, best-effort ones in what is left (BROS, section 4).

Algorithm 1, every step. A real-time (online) request has as long as its target leaves it:

    u = S - e        S: TTFT target before the first token, TBT target after; e: time since the last

The smallest ``u`` that is not missed yet bounds the step. Real-time requests are taken in order of
``u`` until the batch is full or the step would take longer; best-effort ones follow, those with the
least on the host first. In a full batch they replace real-time requests that meet their target one
step later too. The batch grows by one request a step and falls back when the bound was hit, as
TCP's window does (section 4.3). Copies are lazy (section 5): a best-effort request is copied to the
host when its memory is wanted, not before.

In the paper a real-time request fills a block from the left and a best-effort one from the right,
and takes over slot by slot (section 5). Here a page holds one token: any free slot is anyone's, and
a real-time request that finds none takes the last ones of a best-effort request, block by block.
That keeps the rest and is fetched before it goes on. An engine that takes all of a request's pages
or none (SGLang) lets whole requests give way.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from engine_adapter.scheduling.builder import UNBOUNDED_S
from engine_adapter.scheduling.latency import LatencyModel
from engine_adapter.scheduling.plan import FinishedStep, StepPlan
from engine_adapter.scheduling.policies.base import PolicyBase
from engine_adapter.scheduling.policies.settings import PolicySettings
from engine_adapter.scheduling.ranked import Ranked, whole_prompt
from engine_adapter.scheduling.request import Phase, Request
from engine_adapter.scheduling.snapshot import DecodeReady, Snapshot

FIRST_BATCH = 32
"""B0: requests of a step to begin with, and after a bound was hit."""
GROWTH = 1
AVERAGE_WEIGHT = 0.1
BLOCK = 16
"""Tokens that each decoding request may still get before anyone who was cut is fetched."""


class Bros(PolicyBase):
    """Residual time decides."""

    name = "bros"
    cuts = True

    def __init__(self, model: LatencyModel, settings: PolicySettings | None = None) -> None:
        """Start with a small batch."""
        super().__init__(model, settings)
        self.batch = FIRST_BATCH
        self._average_s = 0.0
        # When each real-time request got its newest token, and which one that was.
        self._newest: dict[str, tuple[int, float]] = {}
        self._last_was_prompts = False

    def observe(self, step: FinishedStep) -> None:
        """Follow the usual duration of a step."""
        super().observe(step)
        weight = AVERAGE_WEIGHT if self._average_s else 1.0
        self._average_s += weight * (step.outcome.measured_s - self._average_s)

    def residual_s(self, request: Request, snapshot: Snapshot) -> float:
        """Time the request has until it misses its next target; negative once it has."""
        slo = snapshot.slo
        if request.output_tokens == 0:
            return slo.ttft_s - (snapshot.now_s - request.arrival_at_s)
        return slo.tbt_s - (snapshot.now_s - self._newest[request.rid][1])

    def plan(self, snapshot: Snapshot) -> StepPlan:
        """Algorithm 1."""
        self._note_tokens(snapshot)
        real_time = [*snapshot.online_running, *snapshot.online_waiting]
        residuals = {request.rid: self.residual_s(request, snapshot) for request in real_time}
        # Less than the usual step, and it is missed whatever this one holds.
        met = (u for u in residuals.values() if u > self._average_s)
        bound_s = min(met, default=UNBOUNDED_S)
        builder = self._builder(snapshot)

        def rank(request: Request) -> tuple[float, ...]:
            if request.is_online:
                return (0, residuals[request.rid], request.sequence)
            return (1, not request.holds_slot, request.host_tokens, request.sequence)

        ranked = Ranked(builder, rank, self._room, swaps=True, cuts=self.cuts)
        if ranked.cuts:
            ranked.fetch_keeps = BLOCK * len(snapshot.online_ready)
        urgent = sorted(real_time, key=rank)
        best_effort = sorted(snapshot.offline_waiting, key=rank)
        builder.requests_left = min(builder.requests_left, self.batch)
        is_hit = self._take_real_time(ranked, self._kept(urgent, residuals, snapshot), bound_s)
        if not is_hit:
            ranked.budget_s = bound_s
            self._take_best_effort(ranked, best_effort, bound_s)
        most = snapshot.limits.max_batch_size
        self.batch = (
            FIRST_BATCH if is_hit else min(self.batch + GROWTH, most, len(snapshot.requests))
        )
        self.batch = max(FIRST_BATCH, self.batch)
        self._last_was_prompts = builder.has_chunks and not builder.has_decode
        builder.requests_left = max(1, builder.requests_left)
        ranked.go_on([*urgent, *best_effort])
        return builder.build(bound_s)

    def _note_tokens(self, snapshot: Snapshot) -> None:
        newest = self._newest
        for request in snapshot.online_running:
            seen = newest.get(request.rid)
            if seen is None or seen[0] != request.output_tokens:
                newest[request.rid] = (request.output_tokens, snapshot.now_s)
        for request in snapshot.online_waiting:  # retracted: it had tokens before
            newest.setdefault(request.rid, (request.output_tokens, request.arrival_at_s))
        if len(newest) > 2 * (len(snapshot.requests) + 32):
            self._newest = {rid: seen for rid, seen in newest.items() if rid in snapshot.requests}

    def _kept(
        self, urgent: Sequence[Request], residuals: dict[str, float], snapshot: Snapshot
    ) -> list[Request]:
        """Real-time requests of a full batch, less those that best-effort ones may replace."""
        others = min(len(snapshot.offline_running), self.batch)
        surplus = min(len(urgent), self.batch) + others - self.batch
        kept = list(urgent[: self.batch])
        while surplus > 0 and len(kept) > 1 and residuals[kept[-1].rid] > 2.0 * self._average_s:
            kept.pop()
            surplus -= 1
        return kept

    def _take_real_time(self, ranked: Ranked, requests: Sequence[Request], bound_s: float) -> bool:
        """Take them in order; whether the step would have become longer than the bound.

        The first is taken whatever it costs: it may be late, but not for ever.
        """
        builder = ranked.builder
        place = 0
        while place < len(requests) and builder.requests_left > 0:
            budget_s = UNBOUNDED_S if builder.is_empty else bound_s
            run = _decoding_run(requests, place)
            if run:
                wanted = run[:1] if builder.is_empty else run
                if not self._decode(ranked, wanted, budget_s):
                    return not math.isinf(bound_s)
                place += len(wanted)
                continue
            request = requests[place]
            place += 1
            if request.phase is Phase.RESTORING or request.rid in builder.taken:
                continue
            ranked.budget_s = budget_s
            before = builder.num_online
            ranked.take_prompts(
                [request], displaces=True, begun=[request] if request.holds_slot else []
            )
            if builder.num_online == before and builder.chunk_left > 0 and not math.isinf(budget_s):
                return True
        return False

    def _decode(self, ranked: Ranked, requests: list[Request], budget_s: float) -> bool:
        """Decode them, taking memory from those behind; False if time was too short for all.

        A prompt that was taken before may have displaced some of them.
        """
        builder = ranked.builder
        requests = [request for request in requests if request.rid not in builder.taken]
        if not requests:
            return True
        ready = DecodeReady(requests, builder.page_tokens)
        if ready.pages.total > builder.pages_left:
            ranked.take_decode(requests)
            return True
        return builder.decode_run(ready, budget_s) == len(requests) or builder.has_chunks

    def _take_best_effort(self, ranked: Ranked, waiting: Sequence[Request], bound_s: float) -> None:
        builder = ranked.builder
        decode_first = ranked.mixes or self._last_was_prompts
        if decode_first:
            self._decode_best_effort(ranked, bound_s)
        if ranked.mixes or not builder.has_decode:
            begun = [request for request in ranked.holders if not request.is_online]
            # Who lost pages comes back before anyone begins.
            are_whole = not any(request.phase is Phase.RESTORING for request in begun)
            ranked.take_prompts(waiting if are_whole else [], begun=begun)
        if not decode_first and not builder.has_chunks:
            self._decode_best_effort(ranked, bound_s)

    def _decode_best_effort(self, ranked: Ranked, bound_s: float) -> None:
        builder = ranked.builder
        requests = list(builder.untaken(ranked.snapshot.offline_ready).requests)
        requests.sort(key=lambda request: (request.host_tokens, request.sequence))
        ready = DecodeReady(requests, builder.page_tokens)
        if math.isinf(bound_s) and ready.pages.total > builder.pages_left:
            ranked.take_decode(requests)
        else:
            builder.decode_run(ready, bound_s)

    @staticmethod
    def _room(request: Request) -> int:
        return request.computed_tokens if request.holds_slot else whole_prompt(request)


def _decoding_run(requests: Sequence[Request], place: int) -> list[Request]:
    """Those from ``place`` on that decode, up to the first that does not."""
    end = place
    while end < len(requests) and requests[end].phase is Phase.DECODE:
        end += 1
    return list(requests[place:end])
