"""What a snapshot read once is what the requests say, whatever happened to them before."""

from __future__ import annotations

import random

import pytest

from engine_adapter.scheduling.request import Phase, Request, RequestClass, new_pages
from engine_adapter.scheduling.roster import Roster
from engine_adapter.scheduling.snapshot import (
    Column,
    DecodeReady,
    EngineLimits,
    Resources,
    Snapshot,
)
from engine_adapter.scheduling.targets import Slo


def snapshot_of(roster: Roster, page_tokens: int) -> Snapshot:
    resources = Resources(page_tokens, 16, 1000, 1000)
    return roster.snapshot(0, 0.0, Slo(1, 1), resources, EngineLimits())


def recount(ready: DecodeReady, requests: list[Request], page_tokens: int) -> None:
    """Hold every kept number against the requests."""
    assert ready.requests == requests
    assert len(ready) == len(requests)
    assert ready.rids == tuple(request.rid for request in requests)
    assert ready.can_mix == all(request.can_mix for request in requests)
    lengths = [request.computed_tokens + 1 for request in requests]
    pages = [new_pages(request, 1, page_tokens) for request in requests]
    for column, numbers in (
        (ready.lengths, lengths),
        (ready.squares, [length * length for length in lengths]),
        (ready.pages, pages),
    ):
        for num_requests in range(len(requests) + 1):
            assert column.front(num_requests) == sum(numbers[:num_requests])


@pytest.mark.parametrize("page_tokens", [1, 16])
def test_ready_requests_after_any_change(page_tokens: int) -> None:
    generator = random.Random(page_tokens)
    roster = Roster()
    for i in range(600):
        live = list(roster.requests.values())
        held = [request for request in live if request.holds_slot]
        queued = [request for request in live if not request.holds_slot]
        act = generator.randrange(6)
        if act == 0 or not live:
            made = Request(f"r{i}", generator.choice(list(RequestClass)), 10, 10)
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
        for (
            request
        ) in held:  # ports write requests directly, and not always as many pages as needed
            if request.holds_slot and generator.random() < 0.5:
                request.computed_tokens += generator.randrange(3)
                request.device_pages = generator.randrange(
                    request.computed_tokens // page_tokens + 2
                )
        snapshot = snapshot_of(roster, page_tokens)
        for ready, running in (
            (snapshot.online_ready, snapshot.online_running),
            (snapshot.offline_ready, snapshot.offline_running),
        ):
            requests = [request for request in running if request.phase is Phase.DECODE]
            recount(ready, requests, page_tokens)
            assert all(request.is_online == ready.is_online for request in requests)


def test_the_same_requests_keep_their_tuple_of_ids() -> None:
    roster = Roster()
    for i in range(3):
        roster.add(Request(f"r{i}", RequestClass.OFFLINE, 10, 10))
        roster.start(f"r{i}", Phase.DECODE)
    first = snapshot_of(roster, 1).offline_ready
    roster.requests["r0"].computed_tokens = 7
    second = snapshot_of(roster, 1).offline_ready
    assert second.rids is first.rids
    assert (first.lengths.total, second.lengths.total) == (3, 10)
    roster.requests["r1"].phase = Phase.PREFILL
    assert snapshot_of(roster, 1).offline_ready.rids == ("r0", "r2")


def test_a_column_adds_up_from_the_front() -> None:
    column = Column([3, 0, 4])
    assert [column.front(num) for num in range(4)] == [0, 3, 3, 7]
    assert column.total == 7
    assert Column([]).front(0) == 0
