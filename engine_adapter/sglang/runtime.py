"""The runtime's parts, built beside a scheduler that SGLang has just constructed."""

from __future__ import annotations

import dataclasses
import logging
from typing import Any

from sglang.srt.managers.scheduler_components.output_streamer import SchedulerOutputStreamer
from sglang.srt.mem_cache.evict_policy import PriorityStrategy

from engine_adapter.scheduling.answer_lengths import History
from engine_adapter.scheduling.attained import AttainedLatency
from engine_adapter.scheduling.isolation import Isolation, Pauses
from engine_adapter.scheduling.latency import Coefficients, PolynomialModel
from engine_adapter.scheduling.policies.registry import expects_lengths
from engine_adapter.scheduling.targets import Slo
from engine_adapter.sglang.actuate import DecodeBatchBuilder
from engine_adapter.sglang.cuda_pass import device_clock, pass_stream
from engine_adapter.sglang.kv import HOST_PAGE_TOKENS, Checkpointer, HostPool, Restorer
from engine_adapter.sglang.live_requests import HoldingView, LiveRequests, PendingPrefill
from engine_adapter.sglang.planner import Planner
from engine_adapter.sglang.profiler import Profiler
from engine_adapter.sglang.report import Counters, PassGap, RecentSteps, Reporter
from engine_adapter.sglang.safepoints import RankAgreement, Safepoints
from engine_adapter.sglang.settings import RuntimeSettings, SettingError, free_bytes, most_bytes
from engine_adapter.sglang.snapshot import SnapshotTaker

logger = logging.getLogger(__name__)
DEFAULT_SLO = Slo(ttft_s=0.5, tbt_s=0.2)


class RequestStreamer(SchedulerOutputStreamer):
    """Skips every request whose chunk was not its last one.

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


class Runtime:
    """The parts that co-serving puts beside SGLang's scheduler; they find each other here.

    Attributes:
        counters: What was done so far.
        lengths: Expects the lengths of answers, for a policy that asks; else None.
        attained: Newest latencies of online requests.
        isolation: What online requests get with and without offline work.
        pauses: Steps without offline work, for comparison.
        recent_steps: The newest steps.
        device_clock: Takes the time of passes.
        pass_gap: Time between passes.
        requests: All live requests.
        parked: Ids that the newest step left out.
        holding_view: Those with a slot, as SGLang's running batch.
        decode_requests: Builds decode batches.
        agreement: Keeps the ranks together.
        safepoints: Where a pass may stop.
        host_pool: Pages for KV on the host.
        checkpointer: Copies there.
        restoreer: Copies back.
        snapshots: Takes the state for the policy.
        profiler: Measures steps.
        planner: Asks the policy.
        reporter: Says all this as plain data.
    """

    def __init__(self, scheduler: Any) -> None:
        """Give a scheduler that SGLang has just constructed its parts."""
        scheduler.runtime = self
        settings: RuntimeSettings = scheduler.coserve_settings
        self.counters = Counters()
        self.lengths = History() if expects_lengths(settings.policy) else None
        self.attained = AttainedLatency()
        self.isolation = Isolation()
        self.pauses = Pauses(on=settings.isolation_pauses, share=settings.isolation_share)
        self.recent_steps = RecentSteps()
        self.device_clock = device_clock(scheduler)
        self.pass_gap = PassGap()
        self.requests = LiveRequests()
        self.parked: frozenset[str] = frozenset()
        self.holding_view = HoldingView(self.requests)
        self.decode_requests = DecodeBatchBuilder(scheduler)
        self.agreement = RankAgreement(scheduler)
        self.safepoints = Safepoints(scheduler.tp_worker.model_runner, self.agreement)
        self.host_pool = _host_pool(scheduler, settings, self.agreement)
        self.checkpointer = Checkpointer(scheduler, self.host_pool)
        self.restorer = Restorer(scheduler, self.host_pool)
        slo, num_layers = settings.slo(DEFAULT_SLO), self.safepoints.num_layers
        self.snapshots = SnapshotTaker(scheduler, slo, settings.reserved_slot_share, num_layers)
        self.profiler = Profiler(scheduler, settings)
        self.planner = Planner(settings, self.counters, model_before_profile(), measuring=True)
        self.reporter = Reporter(scheduler)
        self.adopt_profile()
        _show_requests_to_sglang(scheduler, self)
        if scheduler.monitor is not None:
            scheduler.monitor.start(self.safepoints.word)

    def adopt_profile(self) -> None:
        """Plan with the chosen policy and the profile's model; derive the targets nobody set.

        Without a profile the plain policy goes on.
        """
        profile, slo = self.profiler.profile, self.profiler.slo()
        if profile is None or slo is None:
            return
        self.planner.use_model(profile.model())
        self.snapshots.slo = slo
        logger.info(
            "coserve: policy %s, TTFT target %.0f ms, TBT target %.0f ms, profile %s",
            self.planner.policy_name,
            slo.ttft_s * 1000.0,
            slo.tbt_s * 1000.0,
            self.profiler.state,
        )


def _show_requests_to_sglang(scheduler: Any, runtime: Runtime) -> None:
    """Point SGLang's observers at every request that holds a slot, once each."""
    view = scheduler.running_batch = runtime.holding_view
    checker = scheduler.invariant_checker
    checker.get_running_batch = lambda: view
    checker.get_last_batch = lambda: view
    scheduler.load_inquirer = dataclasses.replace(
        scheduler.load_inquirer, get_chunked_req=lambda: PendingPrefill(runtime.requests)
    )
    old = scheduler.output_streamer
    streamer = RequestStreamer(**{f.name: getattr(old, f.name) for f in dataclasses.fields(old)})
    scheduler.output_streamer = streamer
    scheduler.batch_result_processor = dataclasses.replace(
        scheduler.batch_result_processor, output_streamer=streamer
    )
    # Offline requests carry negative priorities: their prefixes are evicted before online ones.
    scheduler.tree_cache.eviction_strategy = PriorityStrategy()


def _host_pool(scheduler: Any, settings: RuntimeSettings, agreement: RankAgreement) -> HostPool:
    kv_pool = scheduler.token_to_kv_pool_allocator.get_kvcache()
    if HOST_PAGE_TOKENS % scheduler.page_size:
        raise SettingError(
            f"the KV page size is {scheduler.page_size}; give --page-size 1, 2, 4, 8 or "
            f"{HOST_PAGE_TOKENS} (COSERVE_ENGINE_ARGS), or set COSERVE_POLICY=off"
        )
    token_bytes = 2 * len(kv_pool.k_buffer) * kv_pool.k_buffer[0][0].numel()
    token_bytes *= kv_pool.k_buffer[0].element_size()
    # Every rank has a pool of its own in the same memory.
    memory = free_bytes() // agreement.size
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
    num_pages = agreement.lowest(tokens // HOST_PAGE_TOKENS)
    return HostPool(kv_pool, num_pages, pass_stream(scheduler))


def model_before_profile() -> PolynomialModel:
    """A guess nobody relies on: the plain policy runs until there is a profile."""
    guess = Coefficients(1e-3, 0.0, 1e-6, 0.0, 1e-3, 2e-2)
    return PolynomialModel(decode=guess, prefill=guess, mixed=guess)
