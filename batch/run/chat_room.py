"""How many rows an engine that is not ours may have beside chat. Pure.

Such an engine has no steps of ours to size, so the number of rows is what gives way. It follows
what chat gets, as gateways measure it: the worst latency of late over its target, its pressure.

    chat's pressure          rows
    ───────────────────────  ──────────────────────────────────────────────────────────────
    above 1: it is late      none at once; what it bears is half of what was there
    `WARY` to 1              as many as now
    below                    up to what it bears at once, then a few more each poll
    no chat, `CALM_S` long   half as many again each poll, to all that the engine may have

Whatever there is, the engine's own queue stays short where it tells of one: rows that wait there
would stand before chat.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final

START: Final = 4.0
"""Rows beside chat before anything is known."""

WARY: Final = 0.8
LATE: Final = 1.0
STEP: Final = 0.5
"""Rows more each poll."""

USED: Final = 0.75
"""Of the bound: rows that have just ended are not replaced at once."""

HALF: Final = 0.5
CALM_S: Final = 2.0
REST_S: Final = 1.0
"""Nothing is sent for so long after chat was late: what was late must leave the window first."""

MAX_QUEUE: Final = 4


@dataclass(frozen=True, slots=True)
class Poll:
    """What is known at one poll.

    Attributes:
        num_open: Chat requests at the engine.
        pressure: Of chat; see above.
        num_rows: Rows that are at the engine.
        queue: Requests that wait there; none where it does not tell.
    """

    num_open: int
    pressure: float
    num_rows: int
    queue: int | None = None


@dataclass(frozen=True, slots=True)
class ChatRoom:
    """The bound, and what it remembers.

    Attributes:
        rows: How many rows may be there.
        borne: How many of them chat bears.
        rests_until_s: Until when nothing is sent.
        calm_since_s: Since when there is no chat; none while there is some.
    """

    rows: float = START
    borne: float = START
    rests_until_s: float = 0.0
    calm_since_s: float | None = None

    @property
    def size(self) -> int:
        """How many whole rows may be at the engine."""
        return int(self.rows)


def after(room: ChatRoom, poll: Poll, now_s: float, max_rows: int) -> ChatRoom:
    """The bound after a poll."""
    if poll.pressure > LATE:
        had = min(float(poll.num_rows), room.rows) or room.borne
        borne = max(1.0, HALF * had) if room.rows else room.borne
        return replace(room, rows=0.0, borne=borne, rests_until_s=now_s + REST_S, calm_since_s=None)
    if now_s < room.rests_until_s:
        return room
    if poll.num_open == 0:
        since_s = now_s if room.calm_since_s is None else room.calm_since_s
        room = replace(room, calm_since_s=since_s)
        if now_s - since_s < CALM_S:
            return replace(room, rows=max(room.rows, min(room.borne, max_rows)))
        rows = room.rows if _is_full(poll) else max(room.borne, 1.5 * room.rows)
        return replace(room, rows=min(float(max_rows), rows))
    # Chat begins among rows that came while there was none: it bears what it bore before.
    rows = min(room.rows, room.borne) if room.calm_since_s is not None else room.rows
    room = replace(room, rows=rows, calm_since_s=None)
    if poll.pressure > WARY or _is_full(poll):
        return room
    if room.rows < room.borne:
        return replace(room, rows=min(room.borne, float(max_rows)))
    # What nobody uses is not learned: it grows only where it was about full.
    if poll.num_rows < USED * room.size:
        return room
    rows = min(float(max_rows), room.rows + STEP)
    return replace(room, rows=rows, borne=rows)


def _is_full(poll: Poll) -> bool:
    return poll.queue is not None and poll.queue > MAX_QUEUE
