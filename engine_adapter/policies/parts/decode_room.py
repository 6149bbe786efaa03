"""How many decode rows fit, found by sums and by halving instead of row by row."""

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
    fit = len(lengths)
    trial = load.copy()
    trial.decode_rows += fit
    trial.decode_context += sum(lengths)
    trial.decode_square += sum([length * length for length in lengths])
    if fit == 0 or model.predict(trial) <= bound_s:
        return fit
    contexts = [0, *accumulate(lengths)]
    squares = [0, *accumulate([length * length for length in lengths])]

    def predicted_s(num_rows: int) -> float:
        trial.decode_rows = load.decode_rows + num_rows
        trial.decode_context = load.decode_context + contexts[num_rows]
        trial.decode_square = load.decode_square + squares[num_rows]
        return model.predict(trial)

    return bisect_right(range(1, fit + 1), bound_s, key=predicted_s)


def rows_with_pages(pages: list[int], pages_left: int) -> int:
    """Most rows, from the front, that take no more than ``pages_left`` device pages together.

    Args:
        pages: Pages each row takes; a row with room in its last page takes none, and one that
            holds more than it needs gives none back.
        pages_left: Device pages still to be promised.
    """
    taken = [num if num > 0 else 0 for num in pages]
    if sum(taken) <= pages_left:
        return len(pages)
    return bisect_right(list(accumulate(taken)), pages_left)
