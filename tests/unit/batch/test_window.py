from __future__ import annotations

from batch import window
from batch.window import EngineSignals


def test_an_idle_engine_gets_more() -> None:
    assert window.adjust(64, EngineSignals(0, 64), 256) == 96


def test_a_filled_queue_is_left_alone() -> None:
    assert window.adjust(64, EngineSignals(20, 44), 256) == 64


def test_a_long_queue_gets_less() -> None:
    assert window.adjust(128, EngineSignals(100, 28), 256) == 96


def test_a_refusal_halves() -> None:
    assert window.adjust(128, EngineSignals(0, 100, num_refused=1), 256) == 64


def test_the_window_has_both_bounds() -> None:
    assert window.adjust(256, EngineSignals(0, 0), 256) == 256
    assert window.adjust(4, EngineSignals(0, 0, num_refused=9), 256) == window.MIN_WINDOW
    assert window.adjust(2, EngineSignals(0, 0, num_refused=9), 2) == 2


def test_the_first_window_follows_what_the_engine_can_run() -> None:
    assert window.start(256, 0) == window.START
    assert window.start(256, 100) == 200
    assert window.start(256, 4096) == 256
    assert window.start(16, 4096) == 16
