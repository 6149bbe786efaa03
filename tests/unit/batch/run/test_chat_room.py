"""How many rows an engine that is not ours may have, over traces of what chat gets."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from batch.run.chat_room import CALM_S, MAX_QUEUE, REST_S, START, ChatRoom, Poll, after

POLL_INTERVAL_S = 0.25
MOST = 64


def run(
    pressure_of: Callable[[int], float],
    seconds: float,
    room: ChatRoom | None = None,
    *,
    num_open: int = 1,
    queue: int | None = None,
    since_s: float = 0.0,
) -> list[ChatRoom]:
    """The bound poll by poll, while there are as many rows as it lets in."""
    room = room or ChatRoom()
    trace = []
    for step in range(int(seconds / POLL_INTERVAL_S)):
        poll = Poll(num_open, pressure_of(room.size), room.size, queue)
        room = after(room, poll, since_s + step * POLL_INTERVAL_S, MOST)
        trace.append(room)
    return trace


def test_late_chat_leaves_none_at_once_and_for_a_while() -> None:
    room = after(ChatRoom(rows=40, borne=40), Poll(3, 1.2, 40), 10.0, MOST)
    assert (room.size, room.borne) == (0, 20)
    assert after(room, Poll(3, 0.1, 0), 10.0 + REST_S / 2, MOST).size == 0
    assert after(room, Poll(3, 0.1, 0), 10.0 + REST_S, MOST).size == 20


def test_late_without_any_rows_is_not_the_rows_fault() -> None:
    late = run(lambda _: 2.0, 10, ChatRoom(rows=16, borne=16))
    assert all(room.size == 0 for room in late)
    assert late[-1].borne == 8, "halved once, when there were rows"


def test_it_finds_what_chat_bears_and_stays_near_it() -> None:
    """Chat is late from 20 rows on."""
    trace = run(lambda rows: rows / 20, 120)
    settled = trace[len(trace) // 2 :]
    assert max(room.size for room in settled) <= 21
    mean = sum(room.size for room in settled) / len(settled)
    assert 10 <= mean <= 20


def test_easy_chat_lets_all_in() -> None:
    assert run(lambda _: 0.1, 60)[-1].size == MOST


def test_rows_that_nobody_has_teach_nothing() -> None:
    room = ChatRoom()
    for step in range(100):
        room = after(room, Poll(1, 0.1, 0), step * POLL_INTERVAL_S, MOST)
    assert room.size == START


def test_without_chat_it_grows_to_all_and_chat_that_comes_finds_what_it_bore() -> None:
    calm = run(lambda _: 0.0, 20, ChatRoom(rows=8, borne=8), num_open=0)
    assert calm[int(CALM_S / POLL_INTERVAL_S) - 1].size == 8, "a pause between two requests is none"
    assert calm[-1].size == MOST
    chat = after(calm[-1], Poll(1, 0.2, MOST), 20.0, MOST)
    assert chat.size == 8


@pytest.mark.parametrize("num_open", [0, 1])
def test_the_engines_own_queue_stays_short(num_open: int) -> None:
    trace = run(lambda _: 0.1, 20, ChatRoom(8, 8), num_open=num_open, queue=MAX_QUEUE + 1)
    assert trace[-1].size == 8


def test_between_wary_and_late_it_stays() -> None:
    assert {room.size for room in run(lambda _: 0.9, 30, ChatRoom(12, 12))} == {12}


@given(
    st.lists(
        st.tuples(
            st.integers(0, 9),
            st.floats(0, 50, allow_nan=False),
            st.integers(0, 99),
            st.none() | st.integers(0, 99),
        ),
        max_size=60,
    )
)
def test_any_trace_keeps_the_bound(polls: list[tuple[int, float, int, int | None]]) -> None:
    room = ChatRoom()
    for step, poll in enumerate(polls):
        room = after(room, Poll(*poll), step * POLL_INTERVAL_S, MOST)
        assert 0 <= room.size <= MOST
        assert 1 <= room.borne <= MOST
        if poll[1] > 1:
            assert room.size == 0
