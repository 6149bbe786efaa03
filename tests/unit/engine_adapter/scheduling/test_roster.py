from __future__ import annotations

import pytest

from engine_adapter.scheduling.request import Phase, Request, RequestClass
from engine_adapter.scheduling.roster import Roster
from engine_adapter.scheduling.snapshot import EngineLimits, Resources
from engine_adapter.scheduling.targets import Slo


def request(rid: str, request_class: RequestClass = RequestClass.OFFLINE) -> Request:
    return Request(rid, request_class, prompt_tokens=10, fill_tokens=10)


def ids(requests: object) -> list[str]:
    return [r.rid for r in requests]  # type: ignore[attr-defined]


def waiting(roster: Roster) -> object:
    resources = Resources(16, 16, 1, 1)
    return roster.snapshot(0, 0.0, Slo(1, 1), resources, EngineLimits()).offline_waiting


def test_a_request_moves_from_waiting_to_running_and_away() -> None:
    roster = Roster()
    roster.add(request("a"))
    roster.add(request("b", RequestClass.ONLINE))
    assert (roster.num_waiting, roster.num_running) == (2, 0)
    roster.start("a")
    assert (roster.num_waiting, roster.num_running) == (1, 1)
    assert roster.finish("a") is not None
    assert roster.finish("b") is not None
    assert not roster.requests
    assert roster.finish("a") is None


def test_flex_waits_with_offline() -> None:
    roster = Roster()
    for rid, request_class in zip("ofx", RequestClass, strict=True):
        roster.add(request(rid, request_class))
    snapshot = roster.snapshot(1, 0.0, Slo(1, 1), Resources(16, 16, 1, 1), EngineLimits())
    assert ids(snapshot.online_waiting) == ["o"]
    assert ids(snapshot.offline_waiting) == ["f", "x"]


def test_the_queue_version_changes_only_with_the_offline_queue() -> None:
    roster = Roster()

    def version() -> int:
        snapshot = roster.snapshot(0, 0.0, Slo(1, 1), Resources(16, 16, 1, 1), EngineLimits())
        return snapshot.offline_waiting_version

    start = version()
    roster.add(request("online", RequestClass.ONLINE))
    assert version() == start
    roster.add(request("a"))
    after_add = version()
    assert after_add != start
    roster.start("a")
    assert version() != after_add


def test_a_retract_forgets_device_state_but_not_the_host_copy() -> None:
    roster = Roster()
    roster.add(request("a"))
    a = roster.start("a", Phase.DECODE)
    a.computed_tokens, a.device_pages, a.host_pages, a.host_tokens = 10, 1, 1, 10
    roster.retract("a")
    assert a.phase is Phase.RETRACTED
    assert (a.computed_tokens, a.device_pages) == (0, 0)
    assert (a.host_pages, a.host_tokens) == (1, 10)


def test_ids_are_unique_while_live() -> None:
    roster = Roster()
    roster.add(request("a"))
    with pytest.raises(ValueError, match="already live"):
        roster.add(request("a"))


def test_a_new_request_holds_no_slot_and_gets_only_one() -> None:
    roster = Roster()
    held = request("a")
    held.phase = Phase.DECODE
    with pytest.raises(ValueError, match="cannot start in phase DECODE"):
        roster.add(held)
    roster.add(request("b"))
    roster.start("b")
    with pytest.raises(ValueError, match="already holds a slot"):
        roster.start("b")


def test_waiting_offline_requests_stay_sorted_whatever_happens() -> None:
    import random

    from engine_adapter.scheduling.request import waiting_key

    generator = random.Random(4)
    roster = Roster()
    for i in range(400):
        act = generator.random()
        requests = [r for r in roster.requests.values() if not r.holds_slot]
        held = [r for r in roster.requests.values() if r.holds_slot]
        if act < 0.5 or not requests:
            made = request(f"r{i}", generator.choice([RequestClass.FLEX, RequestClass.OFFLINE]))
            made.deadline_at_s = float(generator.randrange(5))
            roster.add(made)
        elif act < 0.7:
            roster.start(generator.choice(requests).rid)
        elif act < 0.85 and held:
            roster.retract(generator.choice(held).rid)
        else:
            roster.finish(generator.choice([*requests, *held]).rid)
        snapshot = roster.snapshot(0, 0.0, Slo(1, 1), Resources(16, 16, 1, 1), EngineLimits())
        waiting = list(snapshot.offline_waiting)
        assert waiting == sorted(waiting, key=waiting_key)
        assert {r.rid for r in waiting} == {
            r.rid for r in roster.requests.values() if not r.holds_slot
        }
        phases = {r.phase for r in roster.requests.values()}
        assert roster.has_retracted is (Phase.RETRACTED in phases)


def test_requests_like_another_are_those_of_its_class_and_batch_that_have_not_begun() -> None:
    roster = Roster()
    for rid, batch in zip(("a0", "b0", "a1", "a2", "a3", "a4"), "abaaaa", strict=True):
        roster.add(request(rid))
        roster.requests[rid].batch_id = batch
    for rid in ("a0", "a1"):
        roster.start(rid)
    roster.retract("a1")
    roster.add(request("on", RequestClass.ONLINE))
    roster.add(request("on2", RequestClass.ONLINE))
    assert ids(roster.waiting_like(roster.requests["a0"], 2)) == ["a2", "a3"]
    assert ids(roster.waiting_like(roster.requests["on"], 8)) == ["on", "on2"]


def test_a_start_that_was_undone_leaves_the_request_where_it_was() -> None:
    """A step that was stopped gave it the slot: it has lost nothing, and nobody was retracted."""
    roster = Roster()
    for name in ("a", "b"):
        roster.add(request(name))
    roster.start("b")
    roster.undo_start("b", Phase.WAITING)
    assert not roster.has_retracted
    assert ids(waiting(roster)) == ["a", "b"]
    assert roster.requests["b"].phase is Phase.WAITING


def test_a_retracted_request_whose_new_start_was_undone_is_retracted_still() -> None:
    roster = Roster()
    for name in ("a", "b"):
        roster.add(request(name))
    roster.start("b")
    roster.retract("b")
    roster.start("b")
    roster.undo_start("b", Phase.RETRACTED)
    assert roster.has_retracted
    assert ids(waiting(roster)) == ["b", "a"]
