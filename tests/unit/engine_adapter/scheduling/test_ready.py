"""What a snapshot read once is what the rows say, whatever happened to them before."""

from __future__ import annotations

import random

import pytest

from engine_adapter.scheduling.request import Phase, RequestClass, RequestRow, new_pages
from engine_adapter.scheduling.roster import Roster
from engine_adapter.scheduling.snapshot import Column, EngineLimits, ReadyRows, Resources, Snapshot
from engine_adapter.scheduling.targets import Slo


def snapshot_of(roster: Roster, page_tokens: int) -> Snapshot:
    resources = Resources(page_tokens, 16, 1000, 1000)
    return roster.snapshot(0, 0.0, Slo(1, 1), resources, EngineLimits())


def recount(ready: ReadyRows, rows: list[RequestRow], page_tokens: int) -> None:
    """Hold every kept number against the rows."""
    assert ready.rows == rows
    assert len(ready) == len(rows)
    assert ready.rids == tuple(row.rid for row in rows)
    assert ready.can_mix == all(row.can_mix for row in rows)
    lengths = [row.computed_tokens + 1 for row in rows]
    pages = [new_pages(row, 1, page_tokens) for row in rows]
    for column, numbers in (
        (ready.lengths, lengths),
        (ready.squares, [length * length for length in lengths]),
        (ready.pages, pages),
    ):
        for num_rows in range(len(rows) + 1):
            assert column.front(num_rows) == sum(numbers[:num_rows])


@pytest.mark.parametrize("page_tokens", [1, 16])
def test_ready_rows_after_any_change(page_tokens: int) -> None:
    generator = random.Random(page_tokens)
    roster = Roster()
    for i in range(600):
        live = list(roster.rows.values())
        held = [row for row in live if row.holds_slot]
        queued = [row for row in live if not row.holds_slot]
        act = generator.randrange(6)
        if act == 0 or not live:
            made = RequestRow(f"r{i}", generator.choice(list(RequestClass)), 10, 10)
            made.can_mix = generator.random() < 0.9
            roster.add(made)
        elif act == 1 and queued:
            roster.start(
                generator.choice(queued).rid, generator.choice([Phase.PREFILL, Phase.DECODE])
            )
        elif act == 2 and held and generator.random() < 0.3:
            roster.retract(generator.choice(held).rid)
        elif act == 3 and generator.random() < 0.3:
            roster.finish(generator.choice(live).rid)
        elif act == 4 and held:
            generator.choice(held).phase = generator.choice([Phase.PREFILL, Phase.DECODE])
        for row in held:  # ports write rows directly, and not always as many pages as needed
            if row.holds_slot and generator.random() < 0.5:
                row.computed_tokens += generator.randrange(3)
                row.device_pages = generator.randrange(row.computed_tokens // page_tokens + 2)
        snapshot = snapshot_of(roster, page_tokens)
        for ready, running in (
            (snapshot.online_ready, snapshot.online_running),
            (snapshot.offline_ready, snapshot.offline_running),
        ):
            rows = [row for row in running if row.phase is Phase.DECODE]
            recount(ready, rows, page_tokens)
            assert all(row.is_online == ready.is_online for row in rows)


def test_the_same_rows_keep_their_tuple_of_ids() -> None:
    roster = Roster()
    for i in range(3):
        roster.add(RequestRow(f"r{i}", RequestClass.OFFLINE, 10, 10))
        roster.start(f"r{i}", Phase.DECODE)
    first = snapshot_of(roster, 1).offline_ready
    roster.rows["r0"].computed_tokens = 7
    second = snapshot_of(roster, 1).offline_ready
    assert second.rids is first.rids
    assert (first.lengths.total, second.lengths.total) == (3, 10)
    roster.rows["r1"].phase = Phase.PREFILL
    assert snapshot_of(roster, 1).offline_ready.rids == ("r0", "r2")


def test_a_column_adds_up_from_the_front() -> None:
    column = Column([3, 0, 4])
    assert [column.front(num) for num in range(4)] == [0, 3, 3, 7]
    assert column.total == 7
    assert Column([]).front(0) == 0
