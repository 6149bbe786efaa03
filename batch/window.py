"""How many rows to keep at an engine. Pure.

The engine's own queue is kept filled but short: long enough for its scheduler to have a choice,
short enough that little is lost when it dies. Its signals, not a fixed number, set the window:

    waiting at the engine   window
    ─────────────────────   ──────────────────────────────
    fewer than LOW          grows by a step; after refusals by a small one, now and then
    LOW .. high             stays
    more than high          shrinks by a step
    refused a call          is at once what the engine did accept (429, 503)
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

START: Final = 64
STEP: Final = 32
MIN_WINDOW: Final = 4
LOW_WAITING: Final = 8


@dataclass(frozen=True, slots=True)
class EngineSignals:
    """What the engine said since the last look.

    Attributes:
        num_waiting: Requests in its queue, of every class.
        num_running: Requests it works on, of every class.
        may_grow: Whether the window may grow now.
        wary: Whether it turned a call away not long ago.
    """

    num_waiting: int
    num_running: int
    may_grow: bool = True
    wary: bool = False


def start(max_window: int, max_running: int) -> int:
    """The first window: twice what the engine can run, where it says how much, else `START`."""
    wanted = 2 * max_running if max_running > 0 else START
    return max(min(max_window, MIN_WINDOW), min(max_window, max(START, wanted)))


def adjust(window: int, signals: EngineSignals, max_window: int) -> int:
    """The next window, between `MIN_WINDOW` and `max_window`."""
    high_waiting = max(START, signals.num_running)
    if signals.num_waiting < LOW_WAITING:
        if signals.may_grow:
            window += max(1, window // 32) if signals.wary else STEP
    elif signals.num_waiting > high_waiting:
        window -= STEP
    floor = 1 if signals.wary or not signals.may_grow else min(max_window, MIN_WINDOW)
    return max(floor, min(max_window, window))


def after_refusal(window: int, num_in_flight: int) -> int:
    """The window once a call was turned away while `num_in_flight` others are at the engine."""
    return max(1, min(window, num_in_flight))
