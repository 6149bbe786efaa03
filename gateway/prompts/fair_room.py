"""Room for engine calls, shared so that no project can take it all.

A project may have as many calls in flight as there are places free: one alone comes to half of the
room, two to a third each, and there is some left for the next. It needs no table of who is active,
and follows at once when somebody leaves. The first `FLOOR` calls of a project need only fit.
"""

from __future__ import annotations

from collections import Counter
from typing import Final

from api.errors import Overloaded, RateLimited

FLOOR: Final = 16


class FairRoom:
    """Calls and requests in flight at this gateway, by project.

    Invariant: the counts are those of requests that have entered and not left.
    """

    def __init__(self, size: int) -> None:
        self._size = size
        self._num_calls = 0
        self._calls: Counter[str] = Counter()
        self._requests: Counter[str] = Counter()

    def check(self, project_id: str, num_calls: int, most_requests: int | None) -> None:
        """Refuse a request for which there is no room now.

        Raises:
            RateLimited: Its project has as many requests in flight as it may.
            Overloaded: There is no room at all, or none for this project beside the others.
        """
        if most_requests is not None and self._requests[project_id] >= most_requests:
            raise RateLimited(
                f"This project has {most_requests:,} requests in flight, which is its limit. "
                "Please try again when one has ended."
            )
        free = self._size - self._num_calls
        mine = self._calls[project_id] + num_calls
        if num_calls > free or mine > max(FLOOR, free, num_calls):
            raise Overloaded("The service is busy. Please try again in a moment.")

    def enter(self, project_id: str, num_calls: int) -> None:
        """Count a request that begins."""
        self._num_calls += num_calls
        self._calls[project_id] += num_calls
        self._requests[project_id] += 1

    def leave(self, project_id: str, num_calls: int) -> bool:
        """Forget one that has ended; whether it was the last of all."""
        self._num_calls -= num_calls
        self._calls[project_id] -= num_calls
        self._requests[project_id] -= 1
        if not self._requests[project_id]:
            del self._requests[project_id], self._calls[project_id]
        return not self._num_calls
