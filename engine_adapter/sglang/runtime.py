"""Build the runtime's parts beside a scheduler that has just been constructed by SGLang."""

from __future__ import annotations

import dataclasses
import logging
from typing import Any

from sglang.srt.managers.scheduler_components.output_streamer import SchedulerOutputStreamer
from sglang.srt.mem_cache.evict_policy import PriorityStrategy

from engine_adapter.prediction.registry import create_predictor
from engine_adapter.scheduling.attained import AttainedLatency
from engine_adapter.scheduling.isolation import Isolation, Pauses
from engine_adapter.scheduling.latency import Coefficients, PolynomialModel
from engine_adapter.scheduling.targets import Slo
from engine_adapter.sglang.actuate import DecodeRows
from engine_adapter.sglang.cuda_pass import device_clock, pass_stream
from engine_adapter.sglang.kv import HOST_PAGE_TOKENS, Checkpointer, HostPool, Prefetcher
from engine_adapter.sglang.planner import Planner
from engine_adapter.sglang.profiler import Profiler
from engine_adapter.sglang.report import Counters, PassGap, RecentSteps, Reporter
from engine_adapter.sglang.rows import HoldingView, LiveRows, PendingPrefill
from engine_adapter.sglang.safepoints import RankAgreement, Safepoints
from engine_adapter.sglang.settings import RuntimeSettings, SettingError, free_bytes, most_bytes
from engine_adapter.sglang.snapshot import SnapshotTaker

logger = logging.getLogger(__name__)
DEFAULT_SLO = Slo(ttft_s=0.5, tbt_s=0.2)


class RowStreamer(SchedulerOutputStreamer):
    """Skips every row whose chunk was not its last one.

    SGLang has one half-prefilled request at a time and its streamer can skip one; co-serving has
    several.
    """

    skipped: frozenset[int] = frozenset()

    def stream_output(
        self, reqs: list[Any], return_logprob: bool, skip_req: Any | None = None
    ) -> None:
        """Stream the requests that are not skipped."""
        shown = [req for req in reqs if id(req) not in self.skipped]
        super().stream_output(shown, return_logprob, skip_req)


def install_parts(scheduler: Any) -> None:
    """Give the scheduler rows, planner, safepoints, checkpoints, monitor and reports."""
    settings: RuntimeSettings = scheduler.coserve_settings
    scheduler.counters = Counters()
    scheduler.predictor = create_predictor(settings.length_predictor)
    scheduler.attained = AttainedLatency()
    scheduler.isolation, scheduler.pauses = Isolation(), Pauses(on=settings.isolation_pauses)
    scheduler.recent_steps = RecentSteps()
    scheduler.device_clock = device_clock(scheduler)
    scheduler.pass_gap = PassGap()
    scheduler.rows = LiveRows()
    scheduler.parked = frozenset()
    scheduler.holding_view = HoldingView(scheduler.rows)
    scheduler.running_batch = scheduler.holding_view
    scheduler.decode_rows = DecodeRows(scheduler)
    scheduler.agreement = RankAgreement(scheduler)
    scheduler.safepoints = Safepoints(scheduler.tp_worker.model_runner, scheduler.agreement)
    scheduler.host_pool = _host_pool(scheduler, settings)
    scheduler.checkpointer = Checkpointer(scheduler, scheduler.host_pool)
    scheduler.prefetcher = Prefetcher(scheduler, scheduler.host_pool)
    slo = settings.slo(DEFAULT_SLO)
    scheduler.snapshots = SnapshotTaker(
        scheduler, slo, settings.reserved_slot_share, scheduler.safepoints.num_layers
    )
    scheduler.profiler = Profiler(scheduler, settings)
    scheduler.planner = Planner(
        settings, scheduler.counters, model_before_profile(), measuring=True
    )
    if scheduler.profiler.profile is not None:
        adopt_profile(scheduler)
    scheduler.reporter = Reporter(scheduler)
    _show_rows_to_sglang(scheduler)
    if scheduler.monitor is not None:
        scheduler.monitor.start(scheduler.safepoints.word)


def adopt_profile(scheduler: Any) -> None:
    """Plan with the chosen policy and the profile's model; derive the targets nobody set."""
    profile, slo = scheduler.profiler.profile, scheduler.profiler.slo()
    scheduler.planner.use_model(profile.model())
    scheduler.snapshots.slo = slo
    logger.info(
        "coserve: policy %s, TTFT target %.0f ms, TBT target %.0f ms, profile %s",
        scheduler.planner.policy_name,
        slo.ttft_s * 1000.0,
        slo.tbt_s * 1000.0,
        scheduler.profiler.state,
    )


def _show_rows_to_sglang(scheduler: Any) -> None:
    """Point SGLang's observers at every row that holds a slot, once each."""
    view = scheduler.holding_view
    checker = scheduler.invariant_checker
    checker.get_running_batch = lambda: view
    checker.get_last_batch = lambda: view
    scheduler.load_inquirer = dataclasses.replace(
        scheduler.load_inquirer, get_chunked_req=lambda: PendingPrefill(scheduler.rows)
    )
    old = scheduler.output_streamer
    streamer = RowStreamer(**{f.name: getattr(old, f.name) for f in dataclasses.fields(old)})
    scheduler.output_streamer = streamer
    scheduler.batch_result_processor = dataclasses.replace(
        scheduler.batch_result_processor, output_streamer=streamer
    )
    # Offline requests carry negative priorities: their prefixes are evicted before online ones.
    scheduler.tree_cache.eviction_strategy = PriorityStrategy()


def _host_pool(scheduler: Any, settings: RuntimeSettings) -> HostPool:
    kv_pool = scheduler.token_to_kv_pool_allocator.get_kvcache()
    if HOST_PAGE_TOKENS % scheduler.page_size:
        raise SettingError(
            f"the KV page size is {scheduler.page_size}; give --page-size 1, 2, 4, 8 or "
            f"{HOST_PAGE_TOKENS} (COSERVE_ENGINE_ARGS), or set COSERVE_POLICY=off"
        )
    token_bytes = 2 * len(kv_pool.k_buffer) * kv_pool.k_buffer[0][0].numel()
    token_bytes *= kv_pool.k_buffer[0].element_size()
    # Every rank has a pool of its own in the same memory.
    memory = free_bytes() // scheduler.agreement.size
    is_pinned = scheduler.device == "cuda"
    tokens = settings.host_kv_tokens
    if tokens is None:
        most = most_bytes(memory // 4, pinned=is_pinned) // token_bytes
        tokens = min(2 * scheduler.max_total_num_tokens, most)
    elif tokens * token_bytes > most_bytes(memory, pinned=is_pinned):
        raise SettingError(
            f"COSERVE_HOST_KV_TOKENS={tokens} needs {tokens * token_bytes / 2**30:.1f} GiB and "
            f"{memory / 2**30:.1f} GiB are free; "
            f"give at most {most_bytes(memory, pinned=is_pinned) // token_bytes}"
        )
    # Pools of the same size on every rank: a page id means the same tokens everywhere.
    num_pages = scheduler.agreement.lowest(tokens // HOST_PAGE_TOKENS)
    return HostPool(kv_pool, num_pages, pass_stream(scheduler))


def model_before_profile() -> PolynomialModel:
    """A guess nobody relies on: the plain policy runs until there is a profile."""
    guess = Coefficients(1e-3, 0.0, 1e-6, 0.0, 1e-3, 2e-2)
    return PolynomialModel(decode=guess, prefill=guess, mixed=guess)
