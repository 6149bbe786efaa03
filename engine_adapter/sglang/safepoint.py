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

import inspect
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch

from engine_adapter.scheduling.plan import SafepointMode
from engine_adapter.sglang.cuda_pass import eager_when_armed, run_ahead
from engine_adapter.sglang.graph_segments import guard_segments
from engine_adapter.sglang.rank_agreement import RankAgreement
from engine_adapter.sglang.row_drop import cut_forward_batch
from engine_adapter.sglang.settings import SettingError

LAYER_ARGUMENTS = ("positions", "hidden_states", "forward_batch", "residual")


class StepStopped(BaseException):
    """Unwinds the forward pass of an aborted step; no error, so that nobody on the way logs one."""

    def __init__(self, layer: int) -> None:
        """Stopped before ``layer``."""
        super().__init__(f"stopped before layer {layer}")
        self.layer = layer


@dataclass(slots=True)
class StopWord:
    """Written by the monitor's thread, read at safepoints: one step id and its instant."""

    step_id: int = -1
    raised_at_s: float = 0.0

    def raise_for(self, step_id: int) -> None:
        """Ask step ``step_id`` to stop; the id is written last because it is what is read."""
        self.raised_at_s = time.monotonic()
        self.step_id = step_id


def _check_layer(layer: Any) -> None:
    """Rows are cut out of what a decoder layer is called with: it has to be what is expected.

    Raises:
        SettingError: If the layer takes something else.
    """
    found = tuple(inspect.signature(layer.forward).parameters)[: len(LAYER_ARGUMENTS)]
    if found != LAYER_ARGUMENTS:
        raise SettingError(
            f"{type(layer).__name__} takes {', '.join(found)} and not {', '.join(LAYER_ARGUMENTS)}:"
            " rows cannot be dropped between its layers; start with COSERVE_POLICY=off for this"
            " model"
        )


class Safepoints:
    """Hooks of one model runner.

    Attributes:
        word: The stop word.
        dropped_at_layer: Layer at which the current step lost its offline requests, or None.
        keep: Batch positions that survive a drop.
        num_checks: Safepoints looked at.
        check_cpu_s: Thread CPU time spent looking.
    """

    def __init__(self, model_runner: Any, agreement: RankAgreement) -> None:
        """Hook every decoder layer of the runner's model.

        Raises:
            SettingError: If the model does not keep its decoder layers in ``model.layers``, or they
                take other arguments than most do.
        """
        self.word = StopWord()
        self.dropped_at_layer: int | None = None
        self.num_checks = 0
        self.check_cpu_s = 0.0
        self._runner = model_runner
        self._agreement = agreement
        self._mode = SafepointMode.NONE
        self._step_id = -1
        self._every = 1
        self.keep: list[int] = []
        self._positions: torch.Tensor | None = None
        layers = getattr(getattr(model_runner.model, "model", None), "layers", None)
        if layers is None:
            raise SettingError(
                "safepoints need decoder layers in model.model.layers; "
                "start with COSERVE_POLICY=off for this model"
            )
        for layer in layers:
            _check_layer(layer)
        self.num_layers = len(layers)
        for i, layer in enumerate(layers):
            layer.register_forward_pre_hook(self._hook(i))
        # On other ranks the words of rank 0 bound the launches.
        self._run_ahead = run_ahead(model_runner) if agreement.rank == 0 else None
        guarded = guard_segments(model_runner, self.num_layers, self._between_segments)
        eager_modes = {SafepointMode.DROP} if guarded else {SafepointMode.DROP, SafepointMode.ABORT}
        eager_when_armed(model_runner, lambda: self._mode in eager_modes)
        self._scatter_logits_after_drop()

    def arm(self, mode: SafepointMode, step_id: int, every_layers: int, keep: list[int]) -> None:
        """Arm the next forward pass.

        Args:
            mode: What a stop does; NONE disarms.
            step_id: Only a word with this id stops the pass.
            every_layers: Distance of safepoints in layers.
            keep: Batch positions that survive a drop.
        """
        self._step_id = step_id
        self._every = every_layers
        self.keep = keep
        self._positions = None
        self.dropped_at_layer = None
        if self._run_ahead is not None:
            self._run_ahead.begin()
        self._mode = mode

    def disarm(self) -> None:
        """No safepoints until the next ``arm``."""
        self._mode = SafepointMode.NONE
        self.dropped_at_layer = None

    def _hook(self, i: int) -> Callable[[Any, tuple[Any, ...]], tuple[Any, ...] | None]:
        def hook(_module: Any, args: tuple[Any, ...]) -> tuple[Any, ...] | None:
            if self._mode is SafepointMode.NONE:
                return None
            if self._positions is not None:
                # The model's loop still holds the positions of the full batch.
                return (self._positions, *args[1:])
            if i == 0 or i % self._every:
                return None
            if self._mode is SafepointMode.DROP and len(args) != len(LAYER_ARGUMENTS):
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
        positions, hidden, forward_batch, residual = args
        positions, hidden, residual = cut_forward_batch(
            forward_batch, positions, hidden, residual, self.keep
        )
        # Attention backends plan per batch: plan again for the rows that are left.
        self._runner.attn_backend.init_forward_metadata(forward_batch)
        self._positions = positions
        self.dropped_at_layer = i
        return (positions, hidden, forward_batch, residual)

    def _must_stop(self, layer: int) -> bool:
        """Whether this pass ends, or loses rows, here; every rank answers alike."""
        started_s = time.thread_time()
        seen = (
            self._stop_asked()
            if self._run_ahead is None
            else self._run_ahead.at_safepoint(self._stop_asked)
        )
        stop = self._agreement.at_safepoint(self._step_id, layer, seen)
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
                full[torch.tensor(self.keep, device=logits.device)] = logits
                output.logits_output.next_token_logits = full
            return output

        runner.forward = forward_full_height
