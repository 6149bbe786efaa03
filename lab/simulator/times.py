"""How long steps of the engine in memory really take.

A policy predicts with a fitted model; what a step takes is another matter, and comes from here: a
measured table, a stored profile, either of them with noise.
"""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from typing import Protocol

from engine_adapter.gpu_tables.gpu_table import GpuTimes
from engine_adapter.scheduling.latency import LatencyModel, StepLoad


class StepTimes(Protocol):
    """Durations of forward passes."""

    def step_s(self, load: StepLoad, chunks: Sequence[tuple[int, int]]) -> float:
        """Duration of one step, in seconds.

        Args:
            load: Sums over all requests of the step.
            chunks: ``(num_tokens, context_tokens)`` of its prompt chunks, which the sums hold too.
        """
        ...


class ProfiledTimes:
    """Steps take exactly what a latency model says."""

    def __init__(self, model: LatencyModel) -> None:
        self._model = model

    def step_s(self, load: StepLoad, chunks: Sequence[tuple[int, int]]) -> float:
        """See :meth:`StepTimes.step_s`; only the sums count."""
        return self._model.predict(load)


class TableTimes:
    """Steps take what a GPU table says."""

    def __init__(self, times: GpuTimes) -> None:
        self._times = times

    def step_s(self, load: StepLoad, chunks: Sequence[tuple[int, int]]) -> float:
        return self._times.step_s(
            chunks, load.decode_requests, load.decode_context - load.decode_requests
        )


class Noise:
    """Factors around one that remember: a slow step is followed by a slow one.

    The logarithm is a first-order autoregressive process: ``x' = m x + s sqrt(1 - m^2) e`` with
    normal ``e``. Neighbouring steps of real engines correlate by 0.2 to 0.6.

    Args:
        spread: Standard deviation ``s`` of the logarithm; 0 makes every factor one.
        memory: Correlation ``m`` of neighbouring steps, in ``[0, 1)``.
        seed: Makes the factors repeatable.
    """

    def __init__(self, spread: float = 0.0, memory: float = 0.4, seed: int | str = 0) -> None:
        """Refuse what is no such process.

        Raises:
            ValueError: If ``spread`` is negative or ``memory`` outside ``[0, 1)``.
        """
        if not 0.0 <= spread < math.inf or not 0.0 <= memory < 1.0:
            raise ValueError(f"noise of spread {spread} and memory {memory}: >= 0 and in [0, 1)")
        self._spread = spread
        self._memory = memory
        self._fresh = math.sqrt(1.0 - memory * memory)
        self._generator = random.Random(f"noise/{seed}")
        self._state = self._generator.gauss(0.0, 1.0)

    def next(self) -> float:
        """The factor of the next step."""
        if not self._spread:
            return 1.0
        self._state = self._memory * self._state + self._fresh * self._generator.gauss(0.0, 1.0)
        return math.exp(self._spread * self._state)
