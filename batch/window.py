"""How many rows to keep at an engine. Pure.

The engine's own queue is kept filled but short: long enough for its scheduler to have a choice,
short enough that little is lost when it dies. Its signals, not a fixed number, set the window:

    waiting at the engine   window
    ─────────────────────   ──────────────────────────────
    fewer than LOW          grows by a step
    LOW .. high             stays
    more than high          shrinks by a step
    refused a call          halves (429, 503)
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
        num_refused: Our calls it turned away since the last look.
    """

    num_waiting: int
    num_running: int
    num_refused: int = 0


def start(max_window: int, max_running: int) -> int:
    """The first window: twice what the engine can run, where it says how much, else `START`."""
    wanted = 2 * max_running if max_running > 0 else START
    return max(min(max_window, MIN_WINDOW), min(max_window, max(START, wanted)))


def adjust(window: int, signals: EngineSignals, max_window: int) -> int:
    """The next window, between `MIN_WINDOW` and `max_window`."""
    high_waiting = max(START, signals.num_running)
    if signals.num_refused:
        window //= 2
    elif signals.num_waiting < LOW_WAITING:
        window += STEP
    elif signals.num_waiting > high_waiting:
        window -= STEP
    return max(min(max_window, MIN_WINDOW), min(max_window, window))
