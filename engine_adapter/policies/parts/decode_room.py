"""How many decode rows fit, found by sums and by halving instead of row by row."""

from __future__ import annotations

from bisect import bisect_right

from engine_adapter.core.ready import Column, ReadyRows
from engine_adapter.latency.load import StepLoad
from engine_adapter.latency.model import LatencyModel


def with_rows(load: StepLoad, ready: ReadyRows, num_rows: int) -> StepLoad:
    """The load with the first ``num_rows`` decode rows; each counts the token it computes."""
    joined = load.copy()
    joined.decode_rows += num_rows
    joined.decode_context += ready.lengths.front(num_rows)
    joined.decode_square += ready.squares.front(num_rows)
    return joined


def rows_that_fit(
    model: LatencyModel, load: StepLoad, ready: ReadyRows, most: int, bound_s: float
) -> tuple[int, StepLoad]:
    """Most decode rows, from the front, with which a step stays within ``bound_s``.

    Relies on what every latency model here guarantees: another row never makes a step shorter.

    Args:
        model: Predicts the step.
        load: Rows already in it; not changed.
        ready: The candidates.
        most: How many of them to take at most.
        bound_s: Longest predicted time.

    Returns:
        How many, and the load with them.
    """
    trial = with_rows(load, ready, most)
    if not most or model.predict(trial) <= bound_s:
        return most, trial
    contexts, squares = ready.lengths.sums, ready.squares.sums

    def predicted_s(num_rows: int) -> float:
        trial.decode_rows = load.decode_rows + num_rows
        trial.decode_context = load.decode_context + contexts[num_rows]
        trial.decode_square = load.decode_square + squares[num_rows]
        return model.predict(trial)

    fit = bisect_right(range(1, most + 1), bound_s, key=predicted_s)
    return fit, with_rows(load, ready, fit)


def rows_with_pages(pages: Column, most: int, pages_left: int) -> int:
    """Most rows, from the front, that take no more than ``pages_left`` device pages together.

    Args:
        pages: Pages each row takes, none of them negative.
        most: How many rows to take at most.
        pages_left: Device pages still to be promised.
    """
    if pages.front(most) <= pages_left:
        return most
    return max(0, bisect_right(pages.sums, pages_left, hi=most) - 1)
