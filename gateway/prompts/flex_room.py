"""Room for flex requests, as the engines report it (row C-27).

An engine says every few seconds how many more flex requests it would take. In between, the ones
sent from here are counted: those that end make room, those that begin take it. Other gateways'
requests are seen with the next report; what is sent too much meanwhile waits in the engine. An
engine that reports nothing runs without our scheduler, and takes flex requests as they come.
"""

from __future__ import annotations

from collections import Counter

from api.errors import NoFlexRoom
from engine_adapter.client.base import EngineFacts
from engine_adapter.client.pool import EnginePool, Member


class FlexRoom:
    """Flex calls of this gateway in flight, by engine.

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
        return self._in_flight[member.url] + num_calls <= known[1]

    def choose(self, pool: EnginePool, preferred: Member, model: str, num_calls: int) -> Member:
        """The preferred engine if it has room, else the least busy other one that has.

        Raises:
            NoFlexRoom: None has.
        """
        if self.has_room(preferred, num_calls):
            return preferred
        others = [
            member
            for member in pool.members
            if member.open
            and member.facts is not None
            and member.facts.model == model
            and self.has_room(member, num_calls)
        ]
        if not others:
            raise NoFlexRoom(
                "Resource unavailable: there is no spare capacity for flex requests at the moment. "
                "Please try again later, or ask for service_tier 'default'."
            )
        return min(others, key=lambda member: member.in_flight)

    def enter(self, member: Member, num_calls: int) -> None:
        self._in_flight[member.url] += num_calls

    def leave(self, member: Member, num_calls: int) -> None:
        """Count calls that have ended."""
        self._in_flight[member.url] -= num_calls
