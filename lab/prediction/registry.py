"""Predictors by name."""

from __future__ import annotations

from collections.abc import Callable

from engine_adapter.prediction.base import LengthPredictor
from engine_adapter.prediction.history import History

NAMES = ("history", "learned")
"""Those an engine may use; oracles know what nobody knows before the end."""
DEFAULT_PREDICTOR = "history"


def create_predictor(name: str) -> LengthPredictor:
    """Make the predictor of that name.

    Raises:
        ValueError: If there is none, or its library is not installed; one sentence.
    """
    made: dict[str, Callable[[], LengthPredictor]] = {"history": History, "learned": _learned}
    if name not in made:
        raise ValueError(f"unknown length predictor {name!r}; choose one of {', '.join(NAMES)}")
    return made[name]()


def _learned() -> LengthPredictor:
    from lab.prediction.learned import Learned

    try:
        return Learned()
    except ImportError as error:
        raise ValueError(
            "the length predictor 'learned' needs scikit-learn; install it, or choose 'history'"
        ) from error
