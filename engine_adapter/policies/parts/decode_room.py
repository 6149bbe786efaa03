"""How many decode rows fit, found by sums and by halving instead of row by row."""

from __future__ import annotations

from bisect import bisect_right
from itertools import accumulate
from operator import mul

from engine_adapter.latency.load import StepLoad
from engine_adapter.latency.model import LatencyModel


def with_rows(load: StepLoad, lengths: list[int]) -> StepLoad:
    """The load with decode rows of these lengths; each counts the token it computes."""
    joined = load.copy()
    joined.decode_rows += len(lengths)
    joined.decode_context += sum(lengths)
    joined.decode_square += sum(map(mul, lengths, lengths))
    return joined


def rows_that_fit(
    model: LatencyModel, load: StepLoad, lengths: list[int], bound_s: float
) -> tuple[int, StepLoad]:
    """Most decode rows, from the front, with which a step stays within ``bound_s``.

    Relies on what every latency model here guarantees: another row never makes a step shorter.

    Args:
        model: Predicts the step.
        load: Rows already in it; not changed.
        lengths: Tokens of each candidate with the one it computes.
        bound_s: Longest predicted time.

    Returns:
        How many, and the load with them.
    """
    trial = with_rows(load, lengths)
    if not lengths or model.predict(trial) <= bound_s:
        return len(lengths), trial
    contexts = [0, *accumulate(lengths)]
    squares = [0, *accumulate(map(mul, lengths, lengths))]

    def predicted_s(num_rows: int) -> float:
        trial.decode_rows = load.decode_rows + num_rows
        trial.decode_context = load.decode_context + contexts[num_rows]
        trial.decode_square = load.decode_square + squares[num_rows]
        return model.predict(trial)

    fit = bisect_right(range(1, len(lengths) + 1), bound_s, key=predicted_s)
    return fit, with_rows(load, lengths[:fit])


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
