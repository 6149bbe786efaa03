"""Words between ranks: what rank 0 says at a safepoint, every other rank hears there."""

from __future__ import annotations

import mmap
import socket
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from engine_adapter.sglang import stop_broadcast
from engine_adapter.sglang.stop_broadcast import (
    STOPS_BYTES,
    Listener,
    SentStops,
    SharedStops,
    StopBroadcast,
    encode,
    link_to,
)

NUM_OTHERS = 3


@pytest.fixture(params=["shared", "sent"])
def ranks(request: pytest.FixtureRequest) -> Iterator[tuple[StopBroadcast, list[StopBroadcast]]]:
    """Rank 0, and the others."""
    if request.param == "shared":
        words = SharedStops(mmap.mmap(-1, STOPS_BYTES))
        yield words, [words] * NUM_OTHERS
        return
    listener = Listener("127.0.0.1")
    with ThreadPoolExecutor() as threads:
        linked = [threads.submit(link_to, listener.invitation) for _ in range(NUM_OTHERS)]
        first, others = listener.links(NUM_OTHERS), [one.result() for one in linked]
    yield first, list(others)
    for one in (first, *others):
        _close(one)


def _linked() -> tuple[SentStops, SentStops]:
    """Rank 0, and one other."""
    listener = Listener("127.0.0.1")
    with ThreadPoolExecutor() as threads:
        linking = threads.submit(listener.links, 1)
        other = link_to(listener.invitation)
        return linking.result(), other


def _close(words: SentStops) -> None:
    for link in words._links:
        link.close()


STEPS, LAYERS = range(1, 20), range(4, 32, 4)
SEEN = {(step, 4 + 4 * (step % 7)) for step in STEPS if step % 3}
"""Where rank 0 sees a reason to stop; at each of a step's safepoints in some step."""


def walk(stops: Callable[[int, int], bool]) -> list[tuple[int, int]]:
    """Steps from safepoint to safepoint; where they stopped."""
    found = []
    for step in STEPS:
        for layer in LAYERS:
            if stops(step, layer):
                found.append((step, layer))
                break
    return found


@pytest.mark.parametrize("late", [False, True], ids=["beside it", "long after"])
def test_every_rank_stops_where_rank_0_does(
    ranks: tuple[StopBroadcast, list[StopBroadcast]], late: bool
) -> None:
    first, others = ranks

    def lead() -> list[tuple[int, int]]:
        return walk(lambda *place: first.say(encode(*place, stop=place in SEEN)))

    def follow(rank: StopBroadcast) -> list[tuple[int, int]]:
        return walk(lambda *place: rank.stops_at(encode(*place)))

    with ThreadPoolExecutor() as threads:
        led = lead() if late else []
        followed = [threads.submit(follow, rank) for rank in others]
        led = led or lead()
        assert [one.result() for one in followed] == [led] * NUM_OTHERS
    if isinstance(first, SharedStops):
        assert led == sorted(SEEN), "at once"
    else:
        behind = [(step, layer + 4) for step, layer in sorted(SEEN) if layer + 4 in LAYERS]
        assert led == behind, "one safepoint after it was seen, while the word travels"


def test_words_do_not_gather_where_each_step_has_one_safepoint() -> None:
    first, other = _linked()
    for step in range(1, 1000):
        assert not first.say(encode(step, 4, stop=True))
        assert not other.stops_at(encode(step, 4))
    (link,) = other._links
    link.setblocking(False)
    assert len(link.recv(64, socket.MSG_PEEK)) <= 8
    _close(other)
    _close(first)


def test_who_was_not_invited_hears_nothing() -> None:
    listener = Listener("127.0.0.1")
    host, port, secret = listener.invitation
    with ThreadPoolExecutor() as threads:
        linking = threads.submit(listener.links, 1)
        with socket.create_connection((host, port)) as stranger:
            stranger.sendall(bytes(len(secret)))
            assert stranger.recv(1) == b"", "it is sent away"
        invited = link_to(listener.invitation)
        first = linking.result()
    first.say(encode(1, 4, stop=True))
    assert first.say(encode(1, 8))
    assert not invited.stops_at(encode(1, 4))
    assert invited.stops_at(encode(1, 8))
    _close(invited)
    _close(first)


def test_a_rank_0_that_ends_or_is_elsewhere_is_an_error() -> None:
    first, other = _linked()
    first.say(encode(2, 8))
    assert not other.stops_at(encode(2, 4))
    with pytest.raises(RuntimeError, match="rank 0 was at layer 8 of step 2, this rank at layer 4"):
        other.stops_at(encode(2, 12))
    _close(first)
    with pytest.raises(ConnectionError, match="rank 0 ended before layer 12 of step 2"):
        other.stops_at(encode(3, 4))
    _close(other)


def test_a_silent_rank_0_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stop_broadcast, "GIVE_UP_S", 0.05)
    silent = SharedStops(mmap.mmap(-1, STOPS_BYTES))
    with pytest.raises(TimeoutError, match="rank 0 did not reach layer 4 of step 1"):
        silent.stops_at(encode(1, 4))
