"""How many rows to keep at an engine. Pure.

Behind the rows that the engine works on waits a queue, long enough for its scheduler to have a
choice and never to run dry, short enough that a newcomer does not wait behind it and that little
is lost when the engine dies. It is measured in seconds of work, not in rows:

    waiting at the engine    window
    ──────────────────────   ─────────────────────────────────────────────────
    hardly any               grows by a step; after refusals by a small one, now and then
    more                     the rows it works on, and `QUEUE_S` of work
    more, pace unknown       stays; shrinks by a step where they are more than it can run
    refused a call           is at once what the engine did accept (429, 503); from there it grows
                             by single rows, each on trial (`Trial`)
    refused all calls        waits before the next one (`Closed`)
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final

QUEUE_S: Final = 10.0
"""Rows that end together are replaced out of the queue: as many as end in this time."""

START: Final = 64
STEP: Final = 32
MIN_WINDOW: Final = 4
MIN_QUEUE: Final = 4
LOW_WAITING: Final = 8

FIRST_TRIAL_S: Final = 2.0
SHORTEST_TRIAL_S: Final = 1.0
MAX_TRIAL_S: Final = 60.0
FIRST_CLOSED_S: Final = 0.25
MAX_CLOSED_S: Final = 5.0


@dataclass(frozen=True, slots=True)
class EngineSignals:
    """What the engine said since the last poll, and what is known of our rows there.

    Attributes:
        num_waiting: Requests in its queue, of every class.
        num_running: Requests it works on, of every class.
        num_begun: Of our rows there those that it has begun.
        rows_per_s: How many more rows like ours it does in a second; none: not known yet.
        may_grow: Whether the window may grow now.
        wary: Whether it turned a call away not long ago.
    """

    num_waiting: int
    num_running: int
    num_begun: int = 0
    rows_per_s: float | None = None
    may_grow: bool = True
    wary: bool = False


def start(max_window: int, max_running: int) -> int:
    """The first window: what the engine can run and half as much, where it says, else `START`."""
    wanted = max_running * 3 // 2 if max_running > 0 else START
    return max(1, min(max_window, max(MIN_WINDOW, wanted)))


def queue_rows(rows_per_s: float) -> int:
    """How many rows may wait at an engine of this pace."""
    return max(MIN_QUEUE, int(rows_per_s * QUEUE_S))


def adjust(window: int, signals: EngineSignals, max_window: int) -> int:
    """The next window, between `MIN_WINDOW` and `max_window`."""
    target = _target(window, signals)
    if signals.num_waiting < _low(signals):
        if signals.may_grow and signals.wary:
            window += max(1, window // 32)
        elif signals.may_grow:
            window = max(target, window + max(MIN_QUEUE, min(STEP, window // 2)))
    elif signals.may_grow and not signals.wary:
        window = target
    else:
        window = min(window, target)
    floor = 1 if signals.wary or not signals.may_grow else min(max_window, MIN_WINDOW)
    return max(floor, min(max_window, window))


def _target(window: int, signals: EngineSignals) -> int:
    if signals.rows_per_s is not None:
        return signals.num_begun + queue_rows(signals.rows_per_s)
    return window - STEP if signals.num_waiting > max(START, signals.num_running) else window


def _low(signals: EngineSignals) -> int:
    """With fewer waiting the engine may run dry before the next poll."""
    if signals.rows_per_s is None:
        return LOW_WAITING
    return min(LOW_WAITING, queue_rows(signals.rows_per_s) // 2)


@dataclass(slots=True)
class Trial:
    """How a window grows again after a refusal: a little, tried out for a time, then more.

    A refusal during a trial doubles the time, up to `MAX_TRIAL_S`: an engine that stays full
    refuses about a call a minute. Without a refusal the time shrinks until none is needed.

    Attributes:
        lasts_s: How long each growth is tried out; 0 while no refusal is remembered.
        until_s: The window stays as it is until then.
        runs: Whether it has grown since the last refusal.
    """

    lasts_s: float = 0.0
    until_s: float = -math.inf
    runs: bool = False

    def note_refused(self, now_s: float) -> None:
        """Begin anew; refusals that come together count once."""
        if self.runs or self.lasts_s == 0.0:
            self.lasts_s = min(MAX_TRIAL_S, max(FIRST_TRIAL_S, 2 * self.lasts_s))
            self.runs = False
        self.until_s = now_s + self.lasts_s

    def note_grown(self, now_s: float) -> None:
        """The window has grown: try that out, and the next growth for a shorter time."""
        self.runs = True
        self.until_s = now_s + self.lasts_s
        self.lasts_s = self.lasts_s / 1.5 if self.lasts_s > SHORTEST_TRIAL_S else 0.0


@dataclass(slots=True)
class Closed:
    """An engine that accepts nothing at all: 0.25 s to the next call, doubling up to 5 s.

    Attributes:
        until_s: No call is sent until then.
        next_s: How long the next pause is.
        is_on: Whether no call has been answered since one was refused with none in flight.
    """

    until_s: float = -math.inf
    next_s: float = FIRST_CLOSED_S
    is_on: bool = False

    def note_refused(self, now_s: float) -> None:
        """A call was refused while no other was in flight; one during a pause changes nothing."""
        if now_s >= self.until_s:
            self.is_on = True
            self.until_s = now_s + self.next_s
            self.next_s = min(MAX_CLOSED_S, 2 * self.next_s)

    def note_answered(self) -> None:
        self.next_s = FIRST_CLOSED_S
        self.is_on = False


def after_refusal(window: int, num_in_flight: int) -> int:
    """The window once a call was turned away while `num_in_flight` others are at the engine."""
    return max(1, min(window, num_in_flight))
