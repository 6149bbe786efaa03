from __future__ import annotations

from engine_adapter.scheduling.request import (
    Phase,
    Request,
    RequestClass,
    SharedPages,
    new_pages,
    pages_for,
)


def request(phase: Phase = Phase.WAITING, **fields: int) -> Request:
    made = Request("r", RequestClass.OFFLINE, prompt_tokens=100, fill_tokens=100, phase=phase)
    for name, value in fields.items():
        setattr(made, name, value)
    return made


def test_pages_are_counted_up() -> None:
    assert [pages_for(n, 16) for n in (0, 1, 16, 17)] == [0, 1, 1, 2]


def test_a_waiting_request_starts_after_its_prefix_hit() -> None:
    waiting = request(cached_tokens=32)
    assert (waiting.start_tokens, waiting.remaining_tokens) == (32, 68)


def test_a_prefix_hit_counts_as_pages_taken_because_it_gets_locked() -> None:
    # 32 cached + 16 new tokens = 3 pages, none of them mapped by the request yet
    assert new_pages(request(cached_tokens=32), 16, 16) == 3


def test_a_running_request_pays_only_for_pages_beyond_its_own() -> None:
    running = request(Phase.PREFILL, computed_tokens=40, device_pages=3)
    assert new_pages(running, 8, 16) == 0
    assert new_pages(running, 9, 16) == 1


def test_shared_pages_are_not_freed() -> None:
    mine = request(Phase.DECODE, device_pages=7)
    mine.shared = (SharedPages(1, 2, holders=2), SharedPages(2, 1, holders=5))
    assert mine.freeable_pages == 4


def test_slots_are_held_while_filling_decoding_and_fetching() -> None:
    assert [phase for phase in Phase if request(phase).holds_slot] == [
        Phase.PREFILL,
        Phase.DECODE,
        Phase.RESTORING,
    ]
