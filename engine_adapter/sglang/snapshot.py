"""Take the engine's state for the driver: counts, not copies.

Requests live in the roster and change one at a time, so a snapshot costs the same with ten waiting
requests and with ten thousand.
"""

from __future__ import annotations

import time
from dataclasses import replace
from typing import TYPE_CHECKING

from engine_adapter.coserving_levels import Ability, Coserving
from engine_adapter.runtime_settings import RuntimeSettings
from engine_adapter.scheduling.request import Phase
from engine_adapter.scheduling.snapshot import (
    EngineLimits,
    Resources,
    Snapshot,
    copy_pages,
    reserved_slots,
)
from engine_adapter.scheduling.targets import Slo
from engine_adapter.sglang.cuda_pass import captured_batch_sizes
from engine_adapter.sglang.forms import HOST_PAGE_TOKENS
from engine_adapter.sglang.kv import Checkpointer
from engine_adapter.sglang.live_requests import LiveRequests
from engine_adapter.sglang.prefix_tree import PrefixTree
from engine_adapter.sglang.safepoints import Safepoints

if TYPE_CHECKING:
    from sglang.srt.managers.scheduler import Scheduler

DEFAULT_SLO = Slo(ttft_s=0.5, tbt_s=0.2)


class SnapshotTaker:
    """Builds snapshots of one scheduler.

    Attributes:
        slo: Targets of the online class; replaced when a profile derives them.
        overhead_s: Time a step takes outside the forward pass.
        armed_gap_s: Time a device stands still before a step that may be stopped.
    """

    def __init__(
        self,
        scheduler: Scheduler,
        requests: LiveRequests,
        tree: PrefixTree,
        checkpointer: Checkpointer,
        settings: RuntimeSettings,
        coserving: Coserving,
        safepoints: Safepoints,
    ) -> None:
        self._scheduler = scheduler
        self._requests = requests
        self._tree = tree
        self._checkpointer = checkpointer
        self.slo = settings.slo(DEFAULT_SLO)
        self.overhead_s = self.armed_gap_s = 0.0
        self._total_slots = scheduler.req_to_token_pool.size
        self._reserved_slots = reserved_slots(self._total_slots, settings.reserved_slot_share)
        chunk = scheduler.chunked_prefill_size or scheduler.max_prefill_tokens
        self.limits = EngineLimits(
            max_chunk_tokens=min(chunk, scheduler.max_prefill_tokens),
            max_batch_size=self._total_slots,
            can_mix=True,
            prefill_safepoints=coserving.can(Ability.STOPS),
            decode_safepoints=coserving.can(Ability.STOPS)
            and not captured_batch_sizes(scheduler.tp_worker.model_runner),
            request_drop=coserving.can(Ability.DROPS),
            eager_modes=safepoints.eager_modes,
            num_layers=safepoints.num_layers,
        )
        self._step_id = 0
        self._last: Snapshot | None = None

    def take(self) -> Snapshot:
        """The state before the next step, with a fresh step id."""
        self._step_id += 1
        resources = self.resources()
        if self._may_need_a_retract(resources):
            self._tree.note_shared(self._requests.holding.values())
        self._last = self._requests.roster.snapshot(
            step_id=self._step_id,
            now_s=time.monotonic(),
            slo=self.slo,
            resources=resources,
            limits=self.limits,
            overhead_s=self.overhead_s,
        )
        if self.armed_gap_s:
            self._last = replace(self._last, armed_gap_s=self.armed_gap_s)
        return self._last

    def _may_need_a_retract(self, resources: Resources) -> bool:
        """Whether a plan can want pages that only a retract gives.

        Few are free, or one step may want most of them: a chunk beside a token for each request, or
        a request that is fetched back whole.
        """
        requests = self._requests
        chunk_pages = -(-self.limits.max_chunk_tokens // resources.page_tokens)
        step_pages = chunk_pages + self._total_slots
        return (
            2 * resources.available_pages < max(resources.total_pages, 2 * step_pages)
            or requests.roster.has_retracted
            or any(live.request.phase is Phase.RESTORING for live in requests.holding.values())
        )

    def resources(self) -> Resources:
        """Pages and slots as they stand."""
        s = self._scheduler
        page = s.page_size
        total = s.max_total_num_tokens // page
        free = s.token_to_kv_pool_allocator.available_size() // page
        evictable = s.tree_cache.evictable_size() // page
        pool = self._checkpointer.pool
        return Resources(
            page_tokens=page,
            host_page_tokens=HOST_PAGE_TOKENS,
            total_pages=total,
            free_pages=free,
            evictable_pages=evictable,
            locked_pages=total - free - evictable,
            host_total_pages=pool.ledger.num_pages,
            host_free_pages=pool.ledger.num_free,
            total_slots=self._total_slots,
            free_slots=s.req_to_token_pool.available_size(),
            reserved_slots=self._reserved_slots,
            copy_pages_per_step=self._copy_pages(),
        )

    def _copy_pages(self) -> int:
        """Host pages one step may copy, at the measured price of a page."""
        copier = self._checkpointer
        return copy_pages(
            self.slo,
            beside_online=self._requests.roster.has_online_running,
            page_bytes=copier.pool.page_bytes,
            page_cpu_s=copier.cpu_s / copier.num_pages_stored if copier.num_pages_stored else 0.0,
        )

    def waiting_online_tokens(self) -> int:
        """Prompt tokens of online requests that hold no slot or are half prefilled."""
        if self._last is None:
            return 0
        waiting = sum(request.remaining_tokens for request in self._last.online_waiting)
        return waiting + sum(
            request.remaining_tokens
            for request in self._last.online_running
            if request.phase is Phase.PREFILL
        )
