"""The phases of a run.

    probe ──► alone │ beside │ alone │ beside │ …     ──► stock │ stock │ …
              the batch is paused, goes on, is paused …    after the batch was cancelled

A machine changes its speed within half an hour, so chat alone and chat with the batch alternate.
Phase k of each system has the same chats.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from coserve.prove.batch import Batch
from coserve.prove.clients import RawRows, Seen, Server, send
from coserve.prove.findings import ALONE, BESIDE, STOCK, Taken
from coserve.prove.load import Chat, chats

PROBES: Final = 8
LOAD: Final = 0.4
"""Share of what eight chats at once are answered at, which chat comes at."""

MOST_RATE: Final = 20.0
PHASE_S: Final = 60.0
SEED: Final = 1

Say = Callable[[str], None]


class NoAnswerError(Exception):
    """The server answered none of the chats that probe it; the message says what it said."""


@dataclass(frozen=True)
class Schedule:
    """When what is sent.

    Attributes:
        todo: All chats of a system.
        num_phases: Of each system.
        phase_s: Length of one.
    """

    todo: list[Chat]
    num_phases: int
    phase_s: float

    @classmethod
    def of(cls, rate_per_s: float, seconds: float) -> Schedule:
        """So many seconds of each system, in phases of about a minute."""
        num_phases = max(1, round(seconds / PHASE_S))
        return cls(chats(rate_per_s, seconds, SEED), num_phases, seconds / num_phases)

    def phase(self, number: int) -> list[Chat]:
        begin_s, end_s = number * self.phase_s, (number + 1) * self.phase_s
        return [chat for chat in self.todo if begin_s <= chat.at_s < end_s]


async def probe(server: Server) -> float:
    """Chats per second that leave the engine room: a share of what it answers at once.

    Raises:
        NoAnswerError: It answered none.
    """
    for _ in range(2):  # the first ones warm it
        some = [Chat(number, 0.0, 60, 32) for number in range(PROBES)]
        began_s = time.monotonic()
        seen = await send(server, some, f"probe {began_s}", 0.0)
        took_s = time.monotonic() - began_s
    answered = sum(one.ttft_s is not None for one in seen)
    if not answered:
        raise NoAnswerError(next((one.error for one in seen if one.error), "nothing"))
    return min(MOST_RATE, LOAD * answered / took_s)


async def beside(server: Server, batch: Batch, schedule: Schedule, say: Say) -> dict[str, Taken]:
    """Chat alone and chat with the batch, in alternating phases."""
    taken = {ALONE: Taken(), BESIDE: Taken()}
    for number in range(schedule.num_phases):
        say(f"phase {number + 1} of {schedule.num_phases}: chat alone")
        await _phase(server, schedule, number, ALONE, taken[ALONE])
        say(f"phase {number + 1} of {schedule.num_phases}: chat with the batch")
        await asyncio.to_thread(batch.resume)
        await asyncio.to_thread(batch.new_tokens)
        began_s = time.monotonic()
        await _phase(server, schedule, number, BESIDE, taken[BESIDE])
        taken[BESIDE].batch_tokens += await asyncio.to_thread(batch.new_tokens)
        # Rows ran until the last chat was answered, so that time counts too.
        taken[BESIDE].seconds += time.monotonic() - began_s
        await asyncio.to_thread(batch.pause)
    return taken


async def stock(server: Server, at_once: int, schedule: Schedule, say: Say) -> Taken:
    """The same chats with rows as plain requests."""
    taken = Taken()
    async with RawRows(server, at_once) as rows:
        for number in range(schedule.num_phases):
            say(f"phase {number + 1} of {schedule.num_phases}: without coserve")
            tokens, began_s = rows.num_tokens, time.monotonic()
            await _phase(server, schedule, number, STOCK, taken)
            taken.batch_tokens += rows.num_tokens - tokens
            taken.seconds += time.monotonic() - began_s
    return taken


async def _phase(server: Server, schedule: Schedule, number: int, name: str, taken: Taken) -> None:
    """One phase, which ends with its time and its last answer."""
    began_s = time.monotonic()
    begin_s = number * schedule.phase_s
    todo = schedule.phase(number)
    seen: list[Seen] = await send(server, todo, f"{name} {began_s}", begin_s)
    left_s = schedule.phase_s - (time.monotonic() - began_s)
    await asyncio.sleep(max(0.0, left_s))
    taken.seen += seen
    if name == ALONE:
        taken.seconds += time.monotonic() - began_s
