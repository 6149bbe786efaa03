"""Which rows go back from an engine to make room for others. Pure.

Rows that the engine has not begun are places that can still be divided anew, by the rules of
`batch/run/share.py`. They are handed back only for somebody who holds less than half of what is
his: a newcomer, a batch that was given priority. Small differences even out with the next claims.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from batch.run.share import Demand, divide


@dataclass(frozen=True, slots=True)
class Held:
    """The rows of one batch at an engine: those that it has begun, and those that wait there."""

    num_begun: int = 0
    num_queued: int = 0

    @property
    def num(self) -> int:
        return self.num_begun + self.num_queued


def under_served(size: int, demands: Sequence[Demand], held: Mapping[str, Held]) -> dict[str, int]:
    """Batches that hold too little, and how many rows each is short of.

    Args:
        size: Rows that are to be at the engine.
        demands: Live batches; `num_waiting` and `num_in_flight` are read off `held` here.
        held: Rows at the engine by batch.
    """
    quotas = _quotas(size, demands, held)
    short = {}
    for batch_id, quota in quotas.items():
        mine = held.get(batch_id, Held())
        if mine.num < quota + mine.num_begun and 2 * mine.num <= quota + mine.num_begun:
            short[batch_id] = quota - mine.num_queued
    return short


def rebalance(
    size: int, demands: Sequence[Demand], held: Mapping[str, Held], wanted: Mapping[str, int]
) -> dict[str, int]:
    """How many queued rows of which batch to hand back.

    Args:
        size: Rows that are to be at the engine.
        demands: As for `under_served`.
        held: As for `under_served`.
        wanted: Rows that the under-served could have at once.
    """
    num_free = size - sum(one.num for one in held.values())
    num_missing = sum(wanted.values()) - num_free
    if not wanted or num_missing <= 0:
        return {}
    quotas = _quotas(size, demands, held)
    spare = {
        batch_id: one.num_queued - quotas.get(batch_id, 0)
        for batch_id, one in held.items()
        if batch_id not in wanted
    }
    given: dict[str, int] = {}
    for batch_id, num_spare in sorted(spare.items(), key=lambda one: -one[1]):
        num = min(num_spare, num_missing)
        if num > 0:
            given[batch_id] = num
            num_missing -= num
    return given


def _quotas(size: int, demands: Sequence[Demand], held: Mapping[str, Held]) -> dict[str, int]:
    """How the places that are not begun would be divided if they were free."""
    begun = {batch_id: one.num_begun for batch_id, one in held.items()}
    open_demands = [
        replace(
            demand,
            num_waiting=demand.num_waiting - begun.get(demand.batch_id, 0),
            num_in_flight=begun.get(demand.batch_id, 0),
        )
        for demand in demands
    ]
    return divide(max(0, size - sum(begun.values())), open_demands)
