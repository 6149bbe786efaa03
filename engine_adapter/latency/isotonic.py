"""The nearest curve, and surface, that never decreases.

Pool adjacent violators (Barlow and others, *Statistical Inference under Order Restrictions*, 1972):
neighbours out of order are replaced by their mean until none is left.
"""

from __future__ import annotations

from collections.abc import Sequence


def isotonic(values: Sequence[float]) -> list[float]:
    """The non-decreasing sequence with the least squared distance to ``values``."""
    blocks: list[tuple[float, int]] = []
    for value in values:
        mean, count = float(value), 1
        while blocks and blocks[-1][0] > mean:
            other, num = blocks.pop()
            mean = (other * num + mean * count) / (num + count)
            count += num
        blocks.append((mean, count))
    return [mean for mean, count in blocks for _ in range(count)]


def isotonic_surface(rows: Sequence[Sequence[float]]) -> list[list[float]]:
    """A surface that decreases in neither direction: every column smoothed, then every row.

    Smoothing keeps order: of two sequences of which one is nowhere above the other it makes two
    for which that is still so. So the rows cannot put the columns out of order again.
    """
    columns = [isotonic(column) for column in zip(*rows, strict=True)]
    return [isotonic(row) for row in zip(*columns, strict=True)]
