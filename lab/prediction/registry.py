"""Length predictors by name: what an engine has, one that learns, two that know the truth."""

from __future__ import annotations

from collections.abc import Callable

from engine_adapter.scheduling.answer_lengths import History, LengthPredictor
from lab.prediction.learned import Learned, at_once
from lab.prediction.oracle import NoisyOracle, Oracle, Truth

NAMES = ("history", "learned")
"""Those that know nothing before the end."""
SIMULATED = (*NAMES, "noisy_oracle", "oracle")


def simulated_predictor(name: str, truth: Truth, seed: int = 0) -> LengthPredictor:
    """Make a predictor whose answers depend on the run alone.

    Args:
        name: One of :data:`SIMULATED`; ``noisy_oracle:0.9`` is right within 15 % nine times in ten.
        truth: Knows the length of the answer to each request id.
        seed: Of the noisy oracle's errors.

    Raises:
        ValueError: If there is none of that name, or its accuracy is no share.
    """
    base, _, share = name.partition(":")
    if base == "noisy_oracle":
        try:
            return NoisyOracle(truth, float(share or 0.75), seed)
        except ValueError:
            raise ValueError(f"{name!r}: give an accuracy, for example noisy_oracle:0.75") from None
    made: dict[str, Callable[[], LengthPredictor]] = {
        "oracle": lambda: Oracle(truth),
        "learned": lambda: Learned(start=at_once),
        "history": History,
    }
    if name not in made:
        raise ValueError(f"unknown length predictor {name!r}; choose among {', '.join(SIMULATED)}")
    return made[name]()
