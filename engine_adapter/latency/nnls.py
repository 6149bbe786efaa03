"""Non-negative least squares for a handful of unknowns, in plain Python.

The active-set method of Lawson and Hanson (Solving Least Squares Problems, 1974, chapter 23) on
the normal equations. Columns are scaled to unit length first, so that regressors of the size of
squared context lengths sit beside a constant one.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

Vector = list[float]
Matrix = list[Vector]


def nnls(rows: Sequence[Sequence[float]], targets: Sequence[float]) -> Vector:
    """Minimise ``sum (row . x - target)^2`` under ``x >= 0``.

    Args:
        rows: One regressor vector per observation, all of the same length.
        targets: One observation each.

    Returns:
        The coefficients; a column that is zero throughout gets 0.

    Raises:
        ValueError: If there is no observation or the lengths differ.
    """
    if not rows or len(rows) != len(targets):
        raise ValueError(f"{len(rows)} regressor rows for {len(targets)} observations")
    size = len(rows[0])
    scale = [math.sqrt(sum(row[j] * row[j] for row in rows)) for j in range(size)]
    scaled = [[row[j] / scale[j] if scale[j] else 0.0 for j in range(size)] for row in rows]
    gram = [[sum(row[i] * row[j] for row in scaled) for j in range(size)] for i in range(size)]
    moment = [
        sum(row[i] * target for row, target in zip(scaled, targets, strict=True))
        for i in range(size)
    ]
    solution = _solve_active_set(gram, moment)
    return [x / s if s else 0.0 for x, s in zip(solution, scale, strict=True)]


def _solve_active_set(gram: Matrix, moment: Vector) -> Vector:
    size = len(moment)
    x = [0.0] * size
    passive: list[int] = []
    tolerance = 1e-12 * max((abs(value) for value in moment), default=0.0)
    for _ in range(8 * size):
        gradient = [moment[i] - sum(gram[i][j] * x[j] for j in range(size)) for i in range(size)]
        free = [i for i in range(size) if i not in passive and gradient[i] > tolerance]
        if not free:
            break
        passive.append(max(free, key=lambda i: gradient[i]))
        if not _walk_to_feasible(gram, moment, x, passive):
            break
    return x


def _walk_to_feasible(gram: Matrix, moment: Vector, x: Vector, passive: list[int]) -> bool:
    """Move ``x`` to the best point of the passive set, dropping columns that turn negative."""
    while passive:
        best = _solve_symmetric(
            [[gram[i][j] for j in passive] for i in passive], [moment[i] for i in passive]
        )
        if best is None:
            # The newest column depends on the others: leave it out.
            passive.pop()
            return False
        if all(value > 0.0 for value in best):
            for i, value in zip(passive, best, strict=True):
                x[i] = value
            return True
        step = min(
            x[i] / (x[i] - value) for i, value in zip(passive, best, strict=True) if value <= 0.0
        )
        for i, value in zip(passive, best, strict=True):
            x[i] += step * (value - x[i])
        for i in [i for i in passive if x[i] <= 1e-15]:
            x[i] = 0.0
            passive.remove(i)
    return True


def _solve_symmetric(matrix: Matrix, right: Vector) -> Vector | None:
    """Gauss elimination with row pivots; None if the matrix is singular."""
    size = len(right)
    a = [[*row, value] for row, value in zip(matrix, right, strict=True)]
    for column in range(size):
        pivot = max(range(column, size), key=lambda i: abs(a[i][column]))
        if abs(a[pivot][column]) < 1e-13:
            return None
        a[column], a[pivot] = a[pivot], a[column]
        for i in range(column + 1, size):
            factor = a[i][column] / a[column][column]
            for j in range(column, size + 1):
                a[i][j] -= factor * a[column][j]
    x = [0.0] * size
    for i in reversed(range(size)):
        tail = sum(a[i][j] * x[j] for j in range(i + 1, size))
        x[i] = (a[i][size] - tail) / a[i][i]
    return x
