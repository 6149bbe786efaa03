"""The book of live requests that a port keeps and a snapshot shows.

Every change touches one request, so a snapshot costs the same with ten waiting requests and ten
thousand::

    add ──► waiting ──start──► running ──finish──► (gone)
               ▲                  │
               └─────retract──────┘
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Collection, Sequence
from itertools import islice

from engine_adapter.scheduling.request import Phase, Request, running_key, waiting_key
from engine_adapter.scheduling.snapshot import DecodeReady, EngineLimits, Resources, Snapshot
from engine_adapter.scheduling.targets import Slo

Key = tuple[float, ...]
DECODE = Phase.DECODE


class SortedRequests:
    """Requests in the order of the keys they were filed under.

    Kept in order request by request: sorting hundreds of requests before each step would cost more
    than planning it. The key a request was filed under finds it again whatever changed since.
    """

    def __init__(self) -> None:
        self._requests: list[Request] = []
        self._keys: list[Key] = []
        self._key_of: dict[str, Key] = {}

    def add(self, request: Request, key: Key) -> None:
        """File a request; no two keys are equal."""
        place = bisect_left(self._keys, key)
        self._keys.insert(place, key)
        self._requests.insert(place, request)
        self._key_of[request.rid] = key

    def remove(self, request: Request) -> None:
        """Take a filed request out."""
        place = bisect_left(self._keys, self._key_of.pop(request.rid))
        del self._keys[place]
        del self._requests[place]

    @property
    def requests(self) -> Sequence[Request]:
        """A live view, first to last."""
        return self._requests


class Roster:
    """Live requests, split by whether they hold a slot and by class."""

    def __init__(self) -> None:
        self.requests: dict[str, Request] = {}
        self._running: dict[str, Request] = {}
        self._online_running: dict[str, Request] = {}
        self._offline_running = SortedRequests()
        self._online_waiting: dict[str, Request] = {}
        self._offline_waiting = SortedRequests()
        self._retracted: set[str] = set()
        self._version = 0
        self._ready: tuple[DecodeReady | None, DecodeReady | None] = (None, None)
        self._next_sequence = 0

    def add(self, request: Request) -> None:
        """Take in a new request that holds no slot.

        Raises:
            ValueError: If the id is already live or the request claims a slot.
        """
        if request.rid in self.requests:
            raise ValueError(f"request {request.rid} is already live")
        if request.holds_slot:
            raise ValueError(f"request {request.rid} cannot start in phase {request.phase.name}")
        request.sequence = self._next_sequence
        self._next_sequence += 1
        self.requests[request.rid] = request
        self._queue(request)

    def start(self, rid: str, phase: Phase = Phase.PREFILL) -> Request:
        """Give a waiting request a slot; it begins in ``phase``."""
        request = self.requests[rid]
        if request.holds_slot:
            raise ValueError(f"request {rid} already holds a slot")
        self._unqueue(request)
        self._retracted.discard(rid)
        request.phase = phase
        self._running[rid] = request
        if request.is_online:
            self._online_running[rid] = request
        else:
            self._offline_running.add(request, running_key(request))
        return request

    def retract(self, rid: str) -> Request:
        """Take the slot and the device pages away; the request waits again, ahead of newer ones."""
        return self._give_up(rid, Phase.RETRACTED)

    def undo_start(self, rid: str, phase: Phase) -> Request:
        """Take back the slot that a stopped step gave the request; it waits in the phase it had."""
        return self._give_up(rid, phase)

    def _give_up(self, rid: str, phase: Phase) -> Request:
        request = self.requests[rid]
        self._leave(request)
        request.phase = phase
        if phase is Phase.RETRACTED:
            self._retracted.add(rid)
        request.computed_tokens = 0
        request.cached_tokens = 0
        request.device_pages = 0
        request.shared = ()
        request.restored_pages = 0
        self._queue(request)
        return request

    def finish(self, rid: str) -> Request | None:
        """Forget a request that is done or aborted; None if it was not live."""
        request = self.requests.pop(rid, None)
        if request is None:
            return None
        self._retracted.discard(rid)
        if rid in self._running:
            self._leave(request)
        else:
            self._unqueue(request)
        return request

    def snapshot(
        self,
        step_id: int,
        now_s: float,
        slo: Slo,
        resources: Resources,
        limits: EngineLimits,
        overhead_s: float = 0.0,
    ) -> Snapshot:
        """A view of the requests as they stand; only those ready for a token are looked at."""
        online, offline = self._online_running.values(), self._offline_running.requests
        page_tokens = resources.page_tokens
        ready = (
            _ready(online, page_tokens, self._ready[0]),
            _ready(offline, page_tokens, self._ready[1]),
        )
        self._ready = ready
        return Snapshot(
            step_id=step_id,
            now_s=now_s,
            slo=slo,
            resources=resources,
            limits=limits,
            requests=self.requests,
            running=self._running.values(),
            online_running=online,
            offline_running=offline,
            online_waiting=self._online_waiting.values(),
            offline_waiting=self._offline_waiting.requests,
            online_ready=ready[0],
            offline_ready=ready[1],
            overhead_s=overhead_s,
            offline_waiting_version=self._version,
        )

    @property
    def online_waiting(self) -> Collection[Request]:
        """Online requests without a slot, in arrival order."""
        return self._online_waiting.values()

    @property
    def num_running(self) -> int:
        """Requests that hold a slot."""
        return len(self._running)

    @property
    def num_waiting(self) -> int:
        """Requests without a slot."""
        return len(self._online_waiting) + len(self._offline_waiting.requests)

    def waiting_like(self, request: Request, most: int) -> list[Request]:
        """First requests of the same class and batch that wait for a slot and have not begun."""
        queue = (
            self._online_waiting.values() if request.is_online else self._offline_waiting.requests
        )
        like = (
            other
            for other in queue
            if other.phase is Phase.WAITING
            and (other.request_class, other.batch_id) == (request.request_class, request.batch_id)
        )
        return list(islice(like, most))

    @property
    def has_online_running(self) -> bool:
        """Whether an online request holds a slot."""
        return bool(self._online_running)

    @property
    def has_retracted(self) -> bool:
        """Whether a request waits that was retracted."""
        return bool(self._retracted)

    @property
    def num_retracted(self) -> int:
        """Requests that wait and were retracted."""
        return len(self._retracted)

    def _leave(self, request: Request) -> None:
        del self._running[request.rid]
        if request.is_online:
            del self._online_running[request.rid]
        else:
            self._offline_running.remove(request)

    def _queue(self, request: Request) -> None:
        if request.is_online:
            self._online_waiting[request.rid] = request
        else:
            self._offline_waiting.add(request, waiting_key(request))
            self._version += 1

    def _unqueue(self, request: Request) -> None:
        if request.is_online:
            del self._online_waiting[request.rid]
        else:
            self._offline_waiting.remove(request)
            self._version += 1


def _ready(
    running: Collection[Request], page_tokens: int, before: DecodeReady | None
) -> DecodeReady:
    requests = [request for request in running if request.phase is DECODE]
    return DecodeReady(requests, page_tokens, before)
