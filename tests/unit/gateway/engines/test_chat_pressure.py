"""The worst of what chat got of late, over its target."""

from __future__ import annotations

import pytest

from gateway.engines.chat_pressure import RECENT_S, ChatPressure, OpenChat
from store.repositories.chat_report import ChatNow

URL = "http://vllm:8000"


class Scene:
    """A pressure whose clock the test moves."""

    def __init__(self) -> None:
        self.now_s = 100.0
        self.pressure = ChatPressure(lambda: self.now_s)

    def begin(self, *, stream: bool = True) -> OpenChat:
        return self.pressure.begin(URL, (1.0, 0.1), stream=stream)

    def seen(self) -> ChatNow | None:
        return self.pressure.now().get(URL)


@pytest.fixture
def scene() -> Scene:
    return Scene()


def test_a_first_token_that_does_not_come_is_late_before_it_comes(scene: Scene) -> None:
    scene.begin()
    scene.now_s += 1.5
    assert scene.seen() == ChatNow(1, 1.5)


def test_the_longest_first_token_of_late(scene: Scene) -> None:
    for wait_s in (0.2, 0.6, 0.4):
        chat = scene.begin()
        scene.now_s += wait_s
        chat.note_first(scene.now_s)
        chat.note_first(scene.now_s + 50)
    assert scene.seen() == ChatNow(3, pytest.approx(0.6))  # type: ignore[arg-type]
    scene.now_s += RECENT_S + 1
    assert scene.seen() == ChatNow(3, 0.0)


def test_one_slow_gap_of_many_is_not_all(scene: Scene) -> None:
    chat = scene.begin()
    chat.note_first(scene.now_s)
    for _ in range(40):
        chat.note_gap(scene.now_s, 0.05)
    chat.note_gap(scene.now_s, 5.0)
    assert scene.seen() == ChatNow(1, 0.5)
    for _ in range(10):
        chat.note_gap(scene.now_s, 0.3)
    seen = scene.seen()
    assert seen is not None
    assert seen.pressure > 1


def test_a_whole_answer_is_judged_by_its_tokens(scene: Scene) -> None:
    chat = scene.begin(stream=False)
    scene.now_s += 2.0
    assert scene.seen() == ChatNow(1, 0.0), "its first token is not seen"
    chat.note_whole(scene.now_s, 11)
    assert scene.seen() == ChatNow(1, 1.0)


def test_what_begins_and_what_is_late_is_told_at_once(scene: Scene) -> None:
    due = scene.pressure.due
    chat = scene.begin()
    assert due.is_set()
    due.clear()
    scene.begin()
    chat.note_gap(scene.now_s, 0.05)
    assert not due.is_set()
    chat.note_gap(scene.now_s, 0.2)
    assert due.is_set()


def test_an_end_is_told_once_and_then_nothing(scene: Scene) -> None:
    chat = scene.begin()
    scene.seen()
    chat.end()
    scene.now_s += RECENT_S + 1
    assert scene.seen() == ChatNow(0, 0.0)
    assert scene.seen() is None
    assert scene.seen() is None
