"""Which batches the next claim takes rows from. Pure.

Three rules, in this order:

1. Projects share an engine evenly: the places it has are filled like water, each project getting
   the same, and what one cannot use goes to the others. Places held already count.
2. Inside a project half of the places are spread evenly over the batches of the highest priority,
   so that a small batch does not wait for large ones, and a fifth over all of them, so that none
   is starved ...
3. ... and the rest goes in the order of priority, then deadline.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Final

EVEN_SHARE: Final = 0.5
"""Part of a project's places that is spread evenly over its batches of the highest priority."""

MINIMUM_SHARE: Final = 0.2
"""Part that is spread evenly over all of them."""


@dataclass(frozen=True, slots=True)
class Demand:
    """One live batch and what it could use.

    Attributes:
        num_waiting: Rows it could run beyond those it has in flight (an upper bound).
        num_in_flight: Rows it has in flight at this engine.
    """

    batch_id: str
    project_id: str
    priority: int
    due_at: datetime
    num_waiting: int
    num_in_flight: int


def divide(num_free: int, demands: Sequence[Demand], *, turn: int = 0) -> dict[str, int]:
    """How many rows to claim of each batch, `num_free` in all where there is that much work.

    Args:
        num_free: Places free at the engine.
        demands: Live batches, one entry each.
        turn: Number of this division: who gets the places that cannot be halved changes with it.

    Returns:
        Batches in the order in which to claim, none with zero rows.
    """
    projects: dict[str, list[Demand]] = {}
    for demand in demands:
        if demand.num_waiting > 0:
            projects.setdefault(demand.project_id, []).append(demand)
    held = dict.fromkeys(projects, 0)
    for demand in demands:
        if demand.project_id in held:
            held[demand.project_id] += demand.num_in_flight
    wanted = {project: sum(d.num_waiting for d in batches) for project, batches in projects.items()}
    granted = _fill(num_free, held, wanted, turn)
    quotas: dict[str, int] = {}
    for project, batches in projects.items():
        quotas |= _inside_project(granted[project], batches)
    return {batch_id: num_rows for batch_id, num_rows in quotas.items() if num_rows > 0}


def _fill(num_free: int, held: dict[str, int], wanted: dict[str, int], turn: int) -> dict[str, int]:
    """Give places one level at a time to whoever holds fewest and still wants some."""
    granted = dict.fromkeys(held, 0)
    while num_free > 0:
        open_projects = [name for name in held if granted[name] < wanted[name]]
        if not open_projects:
            break
        level = {name: held[name] + granted[name] for name in open_projects}
        lowest = min(level.values())
        bottom = sorted(name for name in open_projects if level[name] == lowest)
        first = turn % len(bottom)
        bottom = bottom[first:] + bottom[:first]
        # Raise the bottom to the next project's level, or as far as wants and places allow.
        ceiling = min((value for value in level.values() if value > lowest), default=None)
        step = max(1, num_free // len(bottom))
        if ceiling is not None:
            step = min(step, ceiling - lowest)
        for name in bottom:
            given = min(step, wanted[name] - granted[name], num_free)
            granted[name] += given
            num_free -= given
    return granted


def _inside_project(num_places: int, batches: Iterable[Demand]) -> dict[str, int]:
    order = sorted(batches, key=lambda d: (-d.priority, d.due_at, d.batch_id))
    num_held = sum(d.num_in_flight for d in order)
    num_all = num_places + num_held
    top = sum(d.priority == order[0].priority for d in order)
    quotas = dict.fromkeys((d.batch_id for d in order), 0)
    for place, demand in enumerate(order):
        even = EVEN_SHARE / top if place < top else 0.0
        floor = max(1, int(num_all * max(even, MINIMUM_SHARE / len(order))))
        given = min(num_places, demand.num_waiting, max(0, floor - demand.num_in_flight))
        quotas[demand.batch_id] = given
        num_places -= given
    for demand in order:
        given = min(num_places, demand.num_waiting - quotas[demand.batch_id])
        quotas[demand.batch_id] += given
        num_places -= given
    return quotas
