"""Room for engine calls at this gateway: fair between projects, and what engines have for flex."""

from __future__ import annotations

from collections import Counter
from typing import Final

from api.errors import NoFlexRoom, Overloaded
from engine_adapter.client.base import EngineFacts
from engine_adapter.client.pool import EnginePool, Member, Route

FLOOR: Final = 16

NO_ROOM: Final = (
    "Resource unavailable: there is no spare capacity for flex requests at the moment. "
    "Please try again later, or ask for service_tier 'default'."
)


class FairRoom:
    """Calls in flight, shared so that no project can take all the room.

    A project may have as many calls in flight as there are places free: one alone comes to half of
    the room, two to a third each, and there is some left for the next. It needs no table of who is
    active, and follows at once when somebody leaves. The first `FLOOR` calls of a project need only
    fit.

    Invariant: the counts are those of requests that have entered and not left.
    """

    def __init__(self, size: int) -> None:
        self._size = size
        self._num_calls = 0
        self._calls: Counter[str] = Counter()

    def enter(self, project_id: str, num_calls: int) -> None:
        """Count a request that begins.

        Raises:
            Overloaded: There is no room at all, or none for this project beside the others.
        """
        free = self._size - self._num_calls
        mine = self._calls[project_id] + num_calls
        if num_calls > free or mine > max(FLOOR, free, num_calls):
            raise Overloaded("The service is busy. Please try again in a moment.")
        self._num_calls += num_calls
        self._calls[project_id] = mine

    def leave(self, project_id: str, num_calls: int) -> bool:
        """Forget one that has ended; whether it was the last of all."""
        self._num_calls -= num_calls
        self._calls[project_id] -= num_calls
        if not self._calls[project_id]:
            del self._calls[project_id]
        return not self._num_calls


class FlexRoom:
    """Flex calls of this gateway in flight, by engine (row C-27).

    An engine says every few seconds how many more flex requests it would take. In between, the
    ones sent from here are counted: those that end make room, those that begin take it. Other
    gateways' requests are seen with the next report; what is sent too much meanwhile waits in the
    engine. An engine that reports nothing runs without our scheduler, and takes flex requests as
    they come.

    Invariant: an engine's capacity is what it reported as free plus what was in flight from here
    when that report was first looked at.
    """

    def __init__(self) -> None:
        self._in_flight: Counter[str] = Counter()
        self._capacity: dict[str, tuple[EngineFacts, int]] = {}

    def has_room(self, member: Member, num_calls: int) -> bool:
        """Whether an engine would take so many more flex calls."""
        facts = member.facts
        if facts is None or facts.flex_room is None:
            return True
        known = self._capacity.get(member.url)
        if known is None or known[0] is not facts:
            known = facts, facts.flex_room + self._in_flight[member.url]
            self._capacity[member.url] = known
        taken, capacity = self._in_flight[member.url], known[1]
        # Where more choices come than ever fit, the engine queues the rest, if it has no other.
        return taken + num_calls <= capacity or (not taken and capacity > 0)

    def choose(self, pool: EnginePool, preferred: Route, model: str, num_calls: int) -> Route:
        """The preferred engine if it has room, else the least busy other one that has.

        Raises:
            NoFlexRoom: None has.
        """
        if self.has_room(preferred.member, num_calls):
            return preferred
        others = [
            member
            for member in pool.members
            if member.open
            and member.facts is not None
            and member.facts.serves(model)
            and self.has_room(member, num_calls)
        ]
        if not others:
            raise NoFlexRoom(NO_ROOM)
        return Route(min(others, key=lambda member: member.in_flight))

    def enter(self, member: Member, num_calls: int) -> None:
        self._in_flight[member.url] += num_calls

    def leave(self, member: Member, num_calls: int) -> None:
        """Count calls that have ended."""
        self._in_flight[member.url] -= num_calls
