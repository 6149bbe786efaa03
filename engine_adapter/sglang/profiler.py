"""Measure how long steps take, in the background, and switch policies when it is known.

Cells run one at a time between steps, and beside online requests between few of them, so the engine
serves from its first second. The finished profile is stored and loaded by itself at the next start.
"""

from __future__ import annotations

import logging
import time
from array import array
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
from engine_adapter.scheduling.fit import (
    Cell,
    Fit,
    Sample,
    armed_cells,
    fit_with_holdout,
    make_grid,
)
from engine_adapter.scheduling.plan import SafepointMode
from engine_adapter.scheduling.profile import Profile, ProfileKey, find_profile, save_profile
from engine_adapter.scheduling.snapshot import Resources
from engine_adapter.scheduling.targets import Slo
from engine_adapter.sglang.cuda_pass import (
    DeviceClock,
    captured_batch_sizes,
    captured_prefill_tokens,
    emulated_pass,
    host_computes,
)
from engine_adapter.sglang.decode_batch import DecodeBatchBuilder, mix
from engine_adapter.sglang.planner import TOKENS_WHILE_MEASURING
from engine_adapter.sglang.safepoints import RankAgreement, Safepoints
from engine_adapter.sglang.versions.installed import seam

if TYPE_CHECKING:
    from sglang.srt.managers.scheduler import Scheduler

# --- Run one made-up step on the real model runner and time it.
#
# The requests of a cell have KV slots and a request slot but no content worth keeping: the time of
# a pass does not depend on it. Everything is given back before the function returns.


NO_STEP = -2
"""A step that no word names."""
GROUPS_OF_A_CELL = 8
"""Groups of layers that an armed cell is launched in, as a step of 30 ms is."""


def fits(scheduler: Scheduler, cell: Cell) -> bool:
    """Whether the cell can run beside what is in use on the device now.

    Pages of the prefix cache that no request uses are room, as they are for SGLang's own requests.
    """
    free = scheduler.token_to_kv_pool_allocator.available_size()
    return (
        scheduler.req_to_token_pool.available_size() >= cell.num_requests
        and free + scheduler.tree_cache.evictable_size() >= _tokens(scheduler, cell)
    )


def run_cell(scheduler: Scheduler, cell: Cell, safepoints: Safepoints) -> Sample:
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
        if cell.armed:
            _arm(safepoints, cell)
        measured_s = _timed_pass(scheduler, batch, armed=cell.armed)
    finally:
        safepoints.disarm()
        for req in chunk_reqs + decode_reqs:
            seam.drop_made_up(scheduler, req)
    return Sample(cell.decode, cell.chunks, measured_s, cell.armed)


def _arm(safepoints: Safepoints, cell: Cell) -> None:
    """As the launch of such a step does; the word is never said."""
    mode = SafepointMode.DROP if cell.decode else SafepointMode.ABORT
    every = max(1, safepoints.num_layers // GROUPS_OF_A_CELL)
    safepoints.arm(mode, NO_STEP, every, list(range(len(cell.decode))), safepoints.most_groups)


def _tokens(scheduler: Scheduler, cell: Cell) -> int:
    """KV tokens the cell takes at most: requests end within pages."""
    return int(cell.num_tokens + cell.num_requests * scheduler.page_size)


def _timed_pass(scheduler: Scheduler, batch: Any, *, armed: bool) -> float:
    torch.get_device_module(scheduler.device).synchronize()  # work that is not this cell's
    emulated = emulated_pass(scheduler.tp_worker.model_runner)
    if emulated is None and scheduler.device == "cuda" and not armed:
        device = DeviceClock(None, torch.cuda)
        device.hold()
        started = device.start()
        _pass(scheduler, batch)
        measured_s = device.stop(started)()
    else:
        # On a CPU this thread computes: its own time is what a quiet machine would need, and what
        # neighbours add shows up as drift. A GPU waits for the first layers of an armed step, so
        # its host's time is part of it.
        clock = time.thread_time if host_computes(scheduler) else time.monotonic
        started_s = clock()
        _pass(scheduler, batch)
        measured_s = clock() - started_s
    if emulated is not None:
        measured_s = emulated.timeline.last_s
    runner = getattr(scheduler.model_worker, "war_fastpath_runner", None)
    if runner is not None:  # the next step must not take this pass for the one before it
        runner.war_fastpath_read_done_event = None
    return measured_s


def _pass(scheduler: Scheduler, batch: Any) -> None:
    """Launch the batch and wait for its tokens."""
    resolve_forward_inputs(batch, scheduler.future_map)
    result = scheduler.tp_worker.forward_batch_generation(batch)
    if isinstance(result.next_token_ids, torch.Tensor):
        result.next_token_ids.cpu()


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
"""One gap in so many has a small cell in it where online requests leave no moment for one."""
ONLINE_STEPS_PER_LARGE_CELL, ONLINE_STEPS_BEFORE_LARGE = 64, 512
"""The same of cells longer than chat's own steps before there is a profile: on a CPU, seconds.

So many steps long they wait for a moment without online requests.
"""
OFFLINE_SHARE = 0.5
"""Of the time, left to offline requests that run: cells of seconds must not hold a batch up."""
ALONE_S = 2.0
"""Online requests have left when none has been there for so long."""
MISFITS = 4
"""Rounds of the cells that are left, beside online requests and without room for any of them."""
PATIENCE_S = 60.0
"""Requests that run get this long to make room by themselves; a short batch is over by then."""


def _new_tokens(cell: Cell) -> int:
    return len(cell.decode) + sum(num for _, num in cell.chunks)


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
        safepoints: Safepoints,
    ) -> None:
        """Load the stored profile of this engine, or prepare to measure one."""
        self._scheduler = scheduler
        self._agreement = agreement
        self._safepoints = safepoints
        self._settings = settings
        self._folder: Path = settings.profile_dir
        self._key = profile_key(scheduler)
        self._samples: list[tuple[Cell, Sample]] = []
        self._grid: list[Cell] = []
        self._todo: list[Cell] = []  # largest first
        self._num_cells = 0
        self._busy_s = 0.0
        self._online_steps = self._misfits = 0
        self._online_at_s = self._next_at_s = 0.0
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
        self._grid = grid + armed_cells(grid, self._safepoints.eager_modes)
        self._todo = sorted(self._grid * REPEATS, key=_new_tokens, reverse=True)
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

    def note_online(self) -> None:
        """Online requests are there: long cells wait until they have been away for a while."""
        self._online_at_s = time.monotonic()

    def choose(self, *, beside_online: bool, beside_offline: bool) -> Cell | None:
        """The cell whose turn it is, if one may run before the next step.

        The largest that is left while nobody is there to wait for it, else the smallest: beside
        offline requests for a share of the time, beside online requests before few of their steps.
        Without a profile chats wait behind whole prompts, and batches for the end of the
        measurement, so it has to end: beside requests that never leave a large cell runs at times.
        """
        if not self._todo:
            return None
        self._online_steps += beside_online
        alone = time.monotonic() > self._online_at_s + ALONE_S and not beside_online
        alone = bool(self._agreement.lowest(int(alone)))
        order = self._todo if alone and not beside_offline else reversed(self._todo)
        cell = next((cell for cell in order if fits(self._scheduler, cell)), None)
        if cell is None:
            self._note_crowd(beside_online)
            return None
        steps = self._online_steps
        if alone and not beside_offline:
            return cell
        if beside_offline and not self._agreement.lowest(int(time.monotonic() > self._next_at_s)):
            return None
        if _new_tokens(cell) <= TOKENS_WHILE_MEASURING:
            return cell if not beside_online or steps % ONLINE_STEPS_PER_CELL == 0 else None
        if alone:
            return cell
        if steps < ONLINE_STEPS_BEFORE_LARGE or steps % ONLINE_STEPS_PER_LARGE_CELL:
            return None
        self._online_steps += not beside_online  # one, not one after the other
        return cell

    def _note_crowd(self, beside_online: bool) -> None:
        """No cell fits; those that could never fit are not in the grid.

        Offline requests make room in the end. Online requests do not, so the last few cells are
        given up where they find none beside them: the largest, that is, which need nearly all
        slots.
        """
        if self._crowded_since_s is None:
            self._crowded_since_s = time.monotonic()
        self._misfits += beside_online
        rounds = self._misfits / (ONLINE_STEPS_PER_CELL * len(self._todo))
        if rounds > MISFITS and len(self._todo) <= self._num_cells // 4:
            self._todo.clear()
            self._finish()

    def run(self, cell: Cell) -> None:
        """Run a cell that was chosen; it fits."""
        self._todo.remove(cell)
        self._misfits = 0
        started_s = time.monotonic()
        self._samples.append((cell, run_cell(self._scheduler, cell, self._safepoints)))
        ended_s = time.monotonic()
        self._busy_s += ended_s - started_s
        self._next_at_s = ended_s + (ended_s - started_s) * OFFLINE_SHARE / (1.0 - OFFLINE_SHARE)
        if not self._todo:
            self._finish()

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
        runner = self._scheduler.tp_worker.model_runner
        place = {cell: number for number, cell in enumerate(self._grid)}
        self._samples.sort(key=lambda taken: place[taken[0]])  # what is held out is the same
        fit: Fit = fit_with_holdout(
            [sample for _, sample in self._samples],
            decode_row_steps=captured_batch_sizes(runner),
            prefill_token_steps=captured_prefill_tokens(runner),
        )
        self.profile = Profile.from_fit(
            self._key,
            fit,
            num_layers=self._safepoints.num_layers,
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
