"""Places between decoder layers where a running step may stop.

A pre-hook on every decoder layer looks at one word before every k-th layer of an armed step
(ConServe v1 section 4.2, v2 section 4.3):

- ABORT, a step without online requests: ``StepStopped`` is raised and unwinds the forward pass.
- DROP, a mixed step: the offline requests are cut out of the hidden states and of the attention
  metadata, and the pass goes on with the online requests.

The word carries the step id, so a word for another step is ignored, and it is never cleared. A
step that is not armed pays one attribute test per layer.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import torch
from sglang.srt.utils import broadcast_pyobj

from engine_adapter.scheduling.plan import SafepointMode, StepPlan
from engine_adapter.sglang.cuda_pass import (
    eager_when_armed,
    guard_segments,
    most_groups,
    run_ahead,
)
from engine_adapter.sglang.stop_broadcast import (
    Listener,
    SharedStops,
    StopBroadcast,
    encode,
    link_to,
)
from engine_adapter.sglang.upload import upload
from engine_adapter.sglang.versions.installed import seam

# --- Tensor parallelism: rank 0 decides, the other ranks do the same, on one node or on several.
#
# Measured times, arrivals and copies differ between ranks, so nothing that depends on them may be
# decided twice. Per step one plan travels from rank 0 to the others beside SGLang's own broadcast
# of requests. Inside an armed step every rank passes a safepoint only after rank 0 has said for
# it whether the pass goes on (`stop_broadcast`). So all ranks stop before the same layer, and no
# collective operation is left half entered.


class RankAgreement:
    """What one rank needs to act like rank 0.

    Attributes:
        rank: Rank in the tensor-parallel group.
        size: Ranks in the group.
    """

    def __init__(self, scheduler: Any) -> None:
        """Join the group of this scheduler."""
        self.rank = seam.rank(scheduler)
        self.size = seam.num_ranks(scheduler)
        self._group = scheduler.tp_cpu_group
        self._source = scheduler.tp_group.ranks[0]
        self._global_rank = scheduler.tp_group.rank
        self._words: StopBroadcast | None = None
        if self.size > 1:
            several_nodes = scheduler.server_args.nnodes > 1
            self._words = self._link(scheduler) if several_nodes else self._map(scheduler)

    def _map(self, scheduler: Any) -> SharedStops:
        path = Path("/dev/shm") / f"coserve-{os.getuid()}-{scheduler.nccl_port}"
        words = SharedStops.at(path)
        self.lowest(0)  # every rank has opened the file
        if self.rank == 0:
            path.unlink()
        return words

    def _link(self, scheduler: Any) -> StopBroadcast:
        # Rank 0 is on the node that the others were told to find each other at.
        host = urlsplit(f"//{scheduler.server_args.dist_init_addr}").hostname
        listener = Listener(host or "") if self.rank == 0 else None
        invitation = self._from_rank_0(listener.invitation if listener is not None else None)
        return link_to(invitation) if listener is None else listener.links(self.size - 1)

    def _from_rank_0(self, thing: Any) -> Any:
        """What rank 0 has, on every rank; the others give None."""
        sent = [thing] if thing is not None else []
        received = broadcast_pyobj(sent, self._global_rank, self._group, src=self._source)
        return thing if thing is not None else received[0]

    def share(self, plan: StepPlan | None) -> StepPlan:
        """Rank 0's plan, on every rank.

        Args:
            plan: The plan on rank 0, None elsewhere.
        """
        if self.size == 1:
            assert plan is not None
            return plan
        told = self._from_rank_0(plan.to_plain() if plan is not None else None)
        return plan if plan is not None else StepPlan.from_plain(told)

    def lowest(self, number: int) -> int:
        """The smallest of the numbers the ranks give."""
        if self.size == 1:
            return number
        tensor = torch.tensor([number], dtype=torch.int64)
        torch.distributed.all_reduce(tensor, torch.distributed.ReduceOp.MIN, group=self._group)
        return int(tensor[0])

    def at_safepoint(self, step_id: int, layer: int, stop: bool) -> bool:
        """Whether the pass stops before ``layer``; the same answer on every rank.

        Args:
            step_id: The running step.
            layer: The layer that would be computed next.
            stop: What rank 0 saw; ignored elsewhere.

        Raises:
            TimeoutError: If rank 0 says nothing for two minutes.
        """
        if self._words is None:
            return stop
        if self.rank == 0:
            return self._words.say(encode(step_id, layer, stop=stop))
        return self._words.stops_at(encode(step_id, layer))


# --- Cut rows out of a forward pass that is under way (ConServe v2, section 4.3).

PER_ROW_TENSORS = (
    "req_pool_indices",
    "seq_lens",
    "seq_lens_cpu",
    "orig_seq_lens",
    "extend_seq_lens",
    "extend_prefix_lens",
)
PER_ROW_LISTS = (
    "extend_seq_lens_cpu",
    "extend_prefix_lens_cpu",
    "extend_logprob_start_lens_cpu",
    "lora_ids",
    "rids",
)
PER_TOKEN_TENSORS = ("input_ids", "out_cache_loc")
PENDING_REDUCE = "_sglang_needs_allreduce_fusion"
"""SGLang's mark on hidden states whose sum over the ranks is left to the next layer's norm."""


def cut_forward_batch(
    forward_batch: Any,
    positions: torch.Tensor,
    hidden: torch.Tensor,
    rest: tuple[Any, ...],
    keep: list[int],
) -> tuple[Any, ...]:
    """Keep only some rows of a batch between two layers.

    Args:
        forward_batch: Changed in place.
        positions: Position of every token, shape [tokens], or [3, tokens] with three axes (mrope).
        hidden: Hidden states, shape [tokens, hidden]; a sum over ranks may be pending on them.
        rest: What a layer takes behind the batch, its residual stream say.
        keep: Row indices that stay, ascending.

    Returns:
        Positions, hidden states and the rest, of the rows that stay.
    """
    device = positions.device  # what a sum over ranks is owed on is no tensor in newer releases
    rows_cpu = torch.tensor(keep, dtype=torch.int64)
    rows = upload(rows_cpu, device)
    tokens = upload(_tokens_of(forward_batch, keep), device)

    for name in PER_ROW_TENSORS:
        value = getattr(forward_batch, name, None)
        if value is not None:
            on_host = name.endswith("_cpu") or value.device != device
            setattr(forward_batch, name, value[rows_cpu if on_host else rows])
    for name in PER_ROW_LISTS:
        value = getattr(forward_batch, name, None)
        if value is not None:
            setattr(forward_batch, name, [value[i] for i in keep])
    for name in PER_TOKEN_TENSORS:
        setattr(forward_batch, name, getattr(forward_batch, name)[tokens])

    forward_batch.positions = positions[..., tokens]
    axes = getattr(forward_batch, "mrope_positions", None)
    if axes is not None:
        forward_batch.mrope_positions = axes[..., tokens]
    forward_batch.batch_size = len(keep)
    if forward_batch.seq_lens_cpu is not None:
        forward_batch.seq_lens_sum = int(forward_batch.seq_lens_cpu.sum())
    if forward_batch.extend_seq_lens is not None:
        lengths = forward_batch.extend_seq_lens
        forward_batch.extend_num_tokens = int(tokens.numel())
        forward_batch.extend_start_loc = torch.cumsum(lengths, 0, dtype=lengths.dtype) - lengths
    cut = seam.cut_hidden(forward_batch, hidden, rest, tokens, _cut_hidden)
    return (forward_batch.positions, *cut)


def _cut_hidden(hidden: torch.Tensor, tokens: torch.Tensor) -> torch.Tensor:
    """Indexing makes a tensor without SGLang's mark: unmarked, the sum would never be taken."""
    kept = hidden[tokens]
    if getattr(hidden, PENDING_REDUCE, False):
        setattr(kept, PENDING_REDUCE, True)
    return kept


def _tokens_of(forward_batch: Any, keep: list[int]) -> torch.Tensor:
    """Token indices of these rows; a decode batch has one token per row."""
    lengths = forward_batch.extend_seq_lens_cpu
    if lengths is None:
        return torch.tensor(keep, dtype=torch.int64)
    starts = [0]
    for length in lengths:
        starts.append(starts[-1] + int(length))
    return torch.cat([torch.arange(starts[i], starts[i + 1]) for i in keep])


# --- The hooks.


class StepStopped(BaseException):
    """Unwinds the forward pass of an aborted step; no error, so that nobody on the way logs one."""

    def __init__(self, layer: int) -> None:
        super().__init__(f"stopped before layer {layer}")
        self.layer = layer


@dataclass(slots=True)
class StopFlag:
    """Written by the monitor's thread, read at safepoints: one step id and its instant."""

    step_id: int = -1
    raised_at_s: float = 0.0

    def raise_for(self, step_id: int) -> None:
        """Ask step ``step_id`` to stop; the id is written last because it is what is read."""
        self.raised_at_s = time.monotonic()
        self.step_id = step_id


class Safepoints:
    """Hooks of one model runner.

    Attributes:
        word: The stop word.
        dropped_at_layer: Layer at which the current step lost its offline requests, or None.
        gave_way_at_s: When the host last stopped a pass or cut one.
        freed_at_s: Waits for the device to be done with what was launched before the last stop or
            cut, and gives that instant.
        most_groups: Groups of layers that may be launched and not finished.
        eager_modes: Modes whose passes with prompt tokens are kept out of captured graphs.
        keep: Batch positions that survive a drop.
        num_checks: Safepoints looked at.
        check_cpu_s: Thread CPU time spent looking.
    """

    def __init__(self, model_runner: Any, agreement: RankAgreement, layers: Sequence[Any]) -> None:
        """Hook these decoder layers of the runner's model; without any, no pass ever stops."""
        self.word = StopFlag()
        self.dropped_at_layer: int | None = None
        self.gave_way_at_s = 0.0
        self.freed_at_s: Callable[[], float] = float
        self.most_groups = most_groups(model_runner)
        self.num_checks = 0
        self.check_cpu_s = 0.0
        self._runner = model_runner
        self._agreement = agreement
        self._mode = SafepointMode.NONE
        self._step_id = -1
        self._every = 1
        self.keep: list[int] = []
        self._kept_rows: torch.Tensor | None = None
        self._positions: torch.Tensor | None = None
        self.num_layers = max(1, len(layers))
        for i, layer in enumerate(layers):
            layer.register_forward_pre_hook(self._hook(i))
        # On other ranks the words of rank 0 bound the launches.
        self._run_ahead = run_ahead(model_runner) if agreement.rank == 0 else None
        guarded = guard_segments(model_runner, self.num_layers, self._between_segments)
        eager_modes = {SafepointMode.DROP} if guarded else {SafepointMode.DROP, SafepointMode.ABORT}
        kept_out = eager_when_armed(model_runner, lambda: self._mode in eager_modes)
        self.eager_modes = frozenset(eager_modes if kept_out else ())
        self._scatter_logits_after_drop()

    def arm(
        self,
        mode: SafepointMode,
        step_id: int,
        every_layers: int,
        keep: list[int],
        groups_in_flight: int = 1,
    ) -> None:
        """Arm the next forward pass.

        Args:
            mode: What a stop does; NONE disarms.
            step_id: Only a word with this id stops the pass.
            every_layers: Distance of safepoints in layers.
            keep: Batch positions that survive a drop.
            groups_in_flight: Groups of layers that may be launched and not finished.
        """
        self._step_id = step_id
        self._every = every_layers
        self.keep = keep
        self._kept_rows = None
        self._positions = None
        self.dropped_at_layer = None
        if self._run_ahead is not None:
            self._run_ahead.begin(groups_in_flight)
        self._mode = mode

    def disarm(self) -> None:
        """No safepoints until the next ``arm``."""
        self._mode = SafepointMode.NONE
        self.dropped_at_layer = None

    def kept_on_device(self, device: Any) -> torch.Tensor:
        """`keep` as an index on the device, taken there once for each pass that is cut."""
        if self._kept_rows is None:
            self._kept_rows = upload(self.keep, device)
        return self._kept_rows

    def _hook(self, i: int) -> Callable[[Any, tuple[Any, ...]], tuple[Any, ...] | None]:
        def hook(_module: Any, args: tuple[Any, ...]) -> tuple[Any, ...] | None:
            if self._mode is SafepointMode.NONE:
                return None
            if self._positions is not None:
                # The model's loop still holds the positions of the full batch.
                return (self._positions, *args[1:])
            if i == 0 or i % self._every:
                return None
            if self._mode is SafepointMode.DROP and len(args) < len(seam.LAYER_ARGUMENTS):
                return None  # called by keyword: there is nothing to cut the rows out of
            return self._look(i, args)

        return hook

    def _between_segments(self, layer: int) -> None:
        if self._mode is SafepointMode.NONE or layer % self._every:
            return
        if self._must_stop(layer):
            raise StepStopped(layer)

    def _look(self, i: int, args: tuple[Any, ...]) -> tuple[Any, ...] | None:
        if not self._must_stop(i):
            return None
        if self._mode is SafepointMode.ABORT:
            raise StepStopped(i)
        positions, hidden, forward_batch, *rest = args
        positions, hidden, *rest = cut_forward_batch(
            forward_batch, positions, hidden, tuple(rest), self.keep
        )
        # Attention backends plan per batch: plan again for the rows that are left.
        self._runner.attn_backend.init_forward_metadata(forward_batch)
        self._positions = positions
        self.dropped_at_layer = i
        return (positions, hidden, forward_batch, *rest)

    def _must_stop(self, layer: int) -> bool:
        """Whether this pass ends, or loses rows, here; every rank answers alike."""
        started_s = time.thread_time()
        seen = (
            self._stop_asked()
            if self._run_ahead is None
            else self._run_ahead.at_safepoint(self._stop_asked)
        )
        stop = self._agreement.at_safepoint(self._step_id, layer, seen)
        if stop:
            self.gave_way_at_s = gave_way_at_s = time.monotonic()
            self.freed_at_s = (
                self._run_ahead.freed_at_s() if self._run_ahead else lambda: gave_way_at_s
            )
        self.num_checks += 1
        self.check_cpu_s += time.thread_time() - started_s
        return stop

    def _stop_asked(self) -> bool:
        return self.word.step_id == self._step_id

    def _scatter_logits_after_drop(self) -> None:
        """Bring the logits of a cut batch back to full height.

        Sampling and result processing then see the batch they know; the zero rows are sampled and
        their tokens ignored.
        """
        runner = self._runner
        forward = runner.forward

        def forward_full_height(forward_batch: Any, *args: Any, **kwargs: Any) -> Any:
            height = forward_batch.batch_size
            output = forward(forward_batch, *args, **kwargs)
            if self.dropped_at_layer is not None:
                logits = output.logits_output.next_token_logits
                full = logits.new_zeros((height, logits.shape[1]))
                full[self.kept_on_device(logits.device)] = logits
                output.logits_output.next_token_logits = full
            return output

        runner.forward = forward_full_height
