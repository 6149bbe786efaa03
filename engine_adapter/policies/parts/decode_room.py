"""How many decode rows fit a bound, found by halving instead of row by row."""

from __future__ import annotations

from bisect import bisect_right
from itertools import accumulate

from engine_adapter.latency.load import StepLoad
from engine_adapter.latency.model import LatencyModel


def rows_that_fit(model: LatencyModel, load: StepLoad, lengths: list[int], bound_s: float) -> int:
    """Most decode rows, from the front, with which a step stays within ``bound_s``.

    Relies on what every latency model here guarantees: another row never makes a step shorter.

    Args:
        model: Predicts the step.
        load: Rows already in it; not changed.
        lengths: Tokens of each candidate with the one it computes.
        bound_s: Longest predicted time.
    """
    contexts = [0, *accumulate(lengths)]
    squares = [0, *accumulate([length * length for length in lengths])]
    trial = load.copy()

    def predicted_s(num_rows: int) -> float:
        trial.decode_rows = load.decode_rows + num_rows
        trial.decode_context = load.decode_context + contexts[num_rows]
        trial.decode_square = load.decode_square + squares[num_rows]
        return model.predict(trial)

    fit = len(lengths)
    if fit == 0 or predicted_s(fit) <= bound_s:
        return fit
    return bisect_right(range(1, fit + 1), bound_s, key=predicted_s)
