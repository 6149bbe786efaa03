"""Measure how long steps take, in the background, and switch policies when it is known.

Cells run one at a time between steps, and beside online requests between few of them, so the engine
serves from its first second. The finished profile is stored and loaded by itself at the next start.
"""

from __future__ import annotations

import logging
import time
from array import array
from collections import deque
from pathlib import Path
from typing import TYPE_CHECKING, Any

import sglang
import torch
from sglang.srt.managers.overlap_utils import RelayPayload, resolve_forward_inputs
from sglang.srt.managers.schedule_batch import Req, ScheduleBatch
from sglang.srt.mem_cache.common import evict_from_tree_cache
from sglang.srt.sampling.sampling_params import SamplingParams

from engine_adapter.host_cpu import cpu_name
from engine_adapter.runtime_settings import RuntimeSettings
from engine_adapter.scheduling.derive import default_slo, token_costs
from engine_adapter.scheduling.fit import Cell, Fit, Sample, fit_with_holdout, make_grid
from engine_adapter.scheduling.profile import Profile, ProfileKey, find_profile, save_profile
from engine_adapter.scheduling.snapshot import Resources
from engine_adapter.scheduling.targets import Slo
from engine_adapter.sglang.cuda_pass import captured_batch_sizes, emulated_pass, host_computes
from engine_adapter.sglang.decode_batch import DecodeBatchBuilder, mix
from engine_adapter.sglang.safepoints import RankAgreement
from engine_adapter.sglang.versions.installed import seam

if TYPE_CHECKING:
    from sglang.srt.managers.scheduler import Scheduler

# --- Run one made-up step on the real model runner and time it.
#
# The requests of a cell have KV slots and a request slot but no content worth keeping: the time of
# a pass does not depend on it. Everything is given back before the function returns.


def fits(scheduler: Scheduler, cell: Cell) -> bool:
    """Whether the cell can run beside what is in use on the device now.

    Pages of the prefix cache that no request uses are room, as they are for SGLang's own requests.
    """
    free = scheduler.token_to_kv_pool_allocator.available_size()
    return (
        scheduler.req_to_token_pool.available_size() >= cell.num_requests
        and free + scheduler.tree_cache.evictable_size() >= _tokens(scheduler, cell)
    )


def run_cell(scheduler: Scheduler, cell: Cell) -> Sample:
    """Time one pass over the cell's requests; the cell must fit."""
    evict_from_tree_cache(scheduler.tree_cache, _tokens(scheduler, cell))
    chunk_reqs = [_request(scheduler, c, p) for p, c in cell.chunks]
    decode_reqs = [_request(scheduler, c, 0) for c in cell.decode]
    for req in decode_reqs:
        _hold(scheduler, req)
    try:
        decode_batch = DecodeBatchBuilder(scheduler).prepare(decode_reqs) if decode_reqs else None
        batch = _prefill(scheduler, chunk_reqs) if chunk_reqs else decode_batch
        if chunk_reqs and decode_batch is not None:
            mix(batch, decode_batch)
        measured_s = _timed_pass(scheduler, batch)
    finally:
        for req in chunk_reqs + decode_reqs:
            seam.drop_made_up(scheduler, req)
    return Sample(cell.decode, cell.chunks, measured_s)


def _tokens(scheduler: Scheduler, cell: Cell) -> int:
    """KV tokens the cell takes at most: requests end within pages."""
    return int(cell.num_tokens + cell.num_requests * scheduler.page_size)


def _timed_pass(scheduler: Scheduler, batch: Any) -> float:
    # On a CPU this thread computes: its own time is what a quiet machine would need, and what
    # neighbours add shows up as drift. On a GPU the thread waits, so wall time it is.
    clock = time.thread_time if host_computes(scheduler) else time.monotonic
    torch.get_device_module(scheduler.device).synchronize()  # work that is not this cell's
    started_s = clock()
    resolve_forward_inputs(batch, scheduler.future_map)
    result = scheduler.tp_worker.forward_batch_generation(batch)
    if isinstance(result.next_token_ids, torch.Tensor):
        result.next_token_ids.cpu()  # waits for the device
    measured_s = clock() - started_s
    emulated = emulated_pass(scheduler.tp_worker.model_runner)
    if emulated is not None:
        measured_s = emulated.timeline.last_s
    runner = getattr(scheduler.model_worker, "war_fastpath_runner", None)
    if runner is not None:  # the next step must not take this pass for the one before it
        runner.war_fastpath_read_done_event = None
    return measured_s


def _request(scheduler: Scheduler, context: int, num_tokens: int) -> Any:
    params = SamplingParams(max_new_tokens=8, temperature=0.0, ignore_eos=True)
    params.normalize(None)
    # 7 is a token of every vocabulary; its embedding is as good as any other.
    ids = array("q", [7]) * (context + max(1, num_tokens))
    req = Req("coserve-profile", "", ids, params, vocab_size=scheduler.model_config.vocab_size)
    req.tokenizer = scheduler.tokenizer
    seam.make_up_prefix(scheduler, req, context)
    req.full_untruncated_fill_ids = ids
    seam.set_extend(req, context, context + num_tokens)
    return req


def _hold(scheduler: Scheduler, req: Any) -> None:
    """Make the request look like one that has been prefilled."""
    seam.hold_made_up(scheduler, req)
    slot = torch.tensor([seam.slot(req)], dtype=torch.int64, device=scheduler.device)
    token = torch.tensor([7], dtype=torch.int64, device=scheduler.device)
    scheduler.future_map.stash(slot, RelayPayload(bonus_tokens=token))


def _prefill(scheduler: Scheduler, reqs: list[Any]) -> Any:
    batch = ScheduleBatch.init_new(
        reqs,
        scheduler.req_to_token_pool,
        scheduler.token_to_kv_pool_allocator,
        scheduler.tree_cache,
        scheduler.model_config,
        scheduler.enable_overlap,
        scheduler.spec_algorithm,
    )
    batch.prepare_for_extend()
    return batch


# --- The grid of cells.

logger = logging.getLogger(__name__)
REPEATS = 2
ONLINE_STEPS_PER_CELL = 16
"""One gap in so many has a cell in it where online requests never leave a moment for one."""
MISFITS = 4
"""Rounds of the cells that are left, beside online requests and without room for any of them."""
PATIENCE_S = 60.0
"""Requests that run get this long to make room by themselves; a short batch is over by then."""


class Profiler:
    """Fills in the grid, one cell at a time.

    Attributes:
        state: ``measuring``, ``ready`` (measured by this process), ``stored`` or ``stopped``.
        profile: The profile in use, once there is one.
    """

    def __init__(
        self,
        scheduler: Scheduler,
        settings: RuntimeSettings,
        agreement: RankAgreement,
        num_layers: int,
    ) -> None:
        """Load the stored profile of this engine, or prepare to measure one."""
        self._scheduler = scheduler
        self._agreement = agreement
        self._num_layers = num_layers
        self._settings = settings
        self._folder: Path = settings.profile_dir
        self._key = profile_key(scheduler)
        self._samples: list[Sample] = []
        self._todo: deque[Cell] = deque()
        self._num_cells = 0
        self._busy_s = 0.0
        self._online_steps = self._misfits = 0
        self._crowded_since_s: float | None = None
        self.state = "measuring"
        self.profile: Profile | None = find_profile(self._key, self._folder)
        if not agreement.lowest(int(self.profile is not None)):
            self.profile = None  # ranks measure together, or none of them does
        if self.profile is not None:
            self.state = "stored"
        else:
            self._begin()

    def begin_anew(self) -> bool:
        """Measure once more; the profile of before serves until the last cell. False: it does."""
        if self.is_measuring:
            return False
        logger.info("coserve: the profile is measured anew")
        self._begin()
        return True

    def _begin(self) -> None:
        """Put every cell of the grid in line."""
        scheduler = self._scheduler
        grid = make_grid(
            scheduler.chunked_prefill_size or scheduler.max_prefill_tokens,
            scheduler.max_total_num_tokens,
            scheduler.req_to_token_pool.size,
            scheduler.model_config.context_len,
        )
        self._todo = deque(cell for _ in range(REPEATS) for cell in grid)
        self._num_cells = len(self._todo)
        self._samples = []
        self._busy_s = 0.0
        self._online_steps = self._misfits = 0
        self._crowded_since_s = None
        self.state = "measuring"

    @property
    def is_measuring(self) -> bool:
        """Whether cells are left to run."""
        return bool(self._todo)

    @property
    def wants_room(self) -> bool:
        """Whether cells have found no room for so long that offline requests should make some."""
        since_s = self._crowded_since_s
        return self.is_measuring and since_s is not None and time.monotonic() > since_s + PATIENCE_S

    def progress(self) -> dict[str, Any]:
        errors = self.profile.held_out if self.profile else {}
        return {
            "state": self.state,
            "cells_done": self._num_cells - len(self._todo),
            "cells": self._num_cells,
            "busy_s": round(self._busy_s, 3),
            "held_out_mean_error": {kind: round(e.mean, 4) for kind, e in errors.items()},
        }

    def is_turn_beside_online(self) -> bool:
        """Whether a cell may run before this step of decoding online requests.

        Without a profile they have no targets that are kept, and wait behind whole prompts; a
        measurement that never ends would leave it at that.
        """
        self._online_steps += 1
        return self._online_steps % ONLINE_STEPS_PER_CELL == 0

    def run_next(self, *, beside_online: bool = False) -> bool:
        """Run one cell if there is room for it; True if one was run.

        A cell that does not fit now goes to the end of the line; one that could never fit is not
        in the grid. Online requests do not make room, so the last few cells are given up where they
        find none beside them: the largest, that is, which need nearly all slots.
        """
        if not self._todo:
            return False
        cell = self._todo.popleft()
        if not fits(self._scheduler, cell):
            self._todo.append(cell)
            if self._crowded_since_s is None:
                self._crowded_since_s = time.monotonic()
            self._misfits += beside_online
            if (
                self._misfits > MISFITS * len(self._todo)
                and len(self._todo) <= self._num_cells // 4
            ):
                self._todo.clear()
                self._finish()
            return False
        self._misfits = 0
        started_s = time.monotonic()
        self._samples.append(run_cell(self._scheduler, cell))
        self._busy_s += time.monotonic() - started_s
        if not self._todo:
            self._finish()
        return True

    def stop(self) -> None:
        """Leave the rest of the grid unmeasured; the plain policy stays."""
        self._todo.clear()
        self.state = "stopped"

    def slo(self) -> Slo | None:
        """The targets: as configured, otherwise what the profile says an idle engine keeps."""
        if self.profile is None:
            return None
        return self._settings.slo(default_slo(self.profile.model()))

    def token_costs(self, slots: Resources) -> dict[str, float]:
        """What tokens of offline requests take by the profile; empty while there is none."""
        if self.profile is None:
            return {}
        num_requests = max(1, (slots.total_slots - slots.reserved_slots) // 2)
        prompt_s, answer_s = token_costs(self.profile.model(), decode_requests=num_requests)
        return {"prompt_s": prompt_s, "answer_s": answer_s}

    def _finish(self) -> None:
        graphs = captured_batch_sizes(self._scheduler.tp_worker.model_runner)
        fit: Fit = fit_with_holdout(self._samples, decode_row_steps=graphs)
        self.profile = Profile.from_fit(
            self._key,
            fit,
            num_layers=self._num_layers,
            measured_at=time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        )
        self.state = "ready"
        if self._agreement.rank:
            return
        try:
            path = save_profile(self.profile, self._folder)
            logger.info("coserve: profile stored in %s after %.1f s", path, self._busy_s)
        except OSError as error:
            logger.warning("coserve: the profile could not be stored: %s", error)


_UNUSUAL = (
    ("disable_prefill_cuda_graph", "no prefill graphs"),
    ("disable_custom_all_reduce", "no custom all-reduce"),
)
"""What makes steps slower where it is set, and is said of such an engine alone."""


def profile_key(scheduler: Scheduler) -> ProfileKey:
    """What a profile of this engine is valid for."""
    args = seam.resolved(scheduler.server_args)
    if torch.cuda.is_available() and scheduler.device != "cpu":
        device = torch.cuda.get_device_name()
    else:
        device = f"{cpu_name()}, {torch.get_num_threads()} threads"
    return ProfileKey(
        model=args.served_model_name or args.model_path,
        device=device,
        parallelism=f"tp{args.tp_size}",
        sglang_version=sglang.__version__,
        dtype=str(scheduler.model_config.dtype).removeprefix("torch."),
        executor=_executor(scheduler),
    )


def _executor(scheduler: Scheduler) -> str:
    """What may change under the same name, between two starts of the same SGLang."""
    args, model = seam.resolved(scheduler.server_args), scheduler.model_config
    graphs = captured_batch_sizes(scheduler.tp_worker.model_runner)
    parts = (
        f"{model.num_hidden_layers} layers of {model.hidden_size}",
        f"{model.num_attention_heads}/{model.num_key_value_heads} heads",
        f"{args.quantization or 'no'} quantization",
        f"{args.attention_backend} attention",
        f"{args.kv_cache_dtype} KV in pages of {scheduler.page_size}",
        f"chunks of {scheduler.chunked_prefill_size or scheduler.max_prefill_tokens}",
        f"graphs to {max(graphs)} rows" if graphs else "no graphs",
    )
    return ", ".join([*parts, *(words for name, words in _UNUSUAL if getattr(args, name, False))])
