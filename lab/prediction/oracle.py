"""Predictors that are told the truth: for simulations and tests, never in an engine.

The noisy one errs as a real one does: the logarithm of its error is normal. Its accuracy is the
share of predictions within :data:`TOLERANCE` of the truth, as EcoServe counts it (section 2.3).
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable
from statistics import NormalDist

from engine_adapter.scheduling.answer_lengths import Asked

TOLERANCE = 0.15

Truth = Callable[[str], int]


class Oracle:
    """Says the truth."""

    name = "oracle"

    def __init__(self, truth: Truth) -> None:
        """Bind what knows the length of the answer to each request id."""
        self._truth = truth

    def expect(self, asked: Asked) -> int:
        return asked.bounded(self._truth(asked.rid))

    def learn(self, asked: Asked, output_tokens: int) -> None:
        """There is nothing to learn."""


class NoisyOracle:
    """The truth with an error of a known size; the same request gets the same error.

    Args:
        truth: Knows the length of the answer to each request id.
        accuracy: Share of predictions within 15 % of the truth, above 0 and below 1.
        seed: Makes the errors repeatable.
    """

    name = "noisy_oracle"

    def __init__(self, truth: Truth, accuracy: float = 0.75, seed: int = 0) -> None:
        """Find the spread that gives the accuracy.

        Raises:
            ValueError: If the accuracy is outside its range.
        """
        if not 0.0 < accuracy < 1.0:
            raise ValueError(f"an accuracy of {accuracy!r}; give a share above 0 and below 1")
        self._truth = truth
        self._seed = seed
        self._spread = math.log1p(TOLERANCE) / NormalDist().inv_cdf((1.0 + accuracy) / 2.0)

    def expect(self, asked: Asked) -> int:
        """The length times a factor around one."""
        error = random.Random(f"{self._seed}/{asked.rid}").gauss(0.0, self._spread)
        return asked.bounded(self._truth(asked.rid) * math.exp(error))

    def learn(self, asked: Asked, output_tokens: int) -> None:
        """There is nothing to learn."""
