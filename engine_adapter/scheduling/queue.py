"""The order of flex and offline requests.

Slot holders: flex before offline, then deadline, then arrival. Waiting requests come sorted in the
snapshot: the same order, but a retracted request before a new one of its class. On top of that
every ``1 / min_share``-th admission goes to the batch that was admitted least recently, so that a
batch with a late deadline still moves. Requests of one batch stay in file order, where they tend to
share a prefix.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Container, Iterable, Iterator, Sequence
from dataclasses import dataclass

from engine_adapter.scheduling.builder import PlanBuilder
from engine_adapter.scheduling.request import Phase, Request, RequestClass
from engine_adapter.scheduling.snapshot import DecodeReady, Snapshot

# --- A snapshot's slot holders, split once by class and phase.


@dataclass(frozen=True, slots=True)
class RequestsByPhase:
    """Slot holders by what a step could do with them.

    Attributes:
        online_decode: Online requests ready for their next token.
        online_partial: Online requests with prompt tokens left.
        online_waiting: Online requests without a slot.
        offline_decode: Flex and offline requests ready for their next token, most important first.
        offline_partial: Flex and offline requests with prompt tokens left, most important first.
        restoring: Requests whose KV is coming back, online first.
        online: Online slot holders.
        offline: All flex and offline slot holders, most important first.
    """

    online_decode: DecodeReady
    online_partial: list[Request]
    online_waiting: list[Request]
    offline_decode: DecodeReady
    offline_partial: list[Request]
    restoring: list[Request]
    online: list[Request]
    offline: list[Request]

    @classmethod
    def of(cls, snapshot: Snapshot) -> RequestsByPhase:
        """Split the snapshot's requests."""
        online, offline = snapshot.online_running, snapshot.offline_running
        online_decode, offline_decode = snapshot.online_ready, snapshot.offline_ready
        waiting = list(snapshot.online_waiting)
        num_ready = len(online_decode.requests) + len(offline_decode.requests)
        if num_ready == len(online) + len(offline):
            # The usual full step: there is nothing else to look for.
            requests = online_decode.requests
            return cls(online_decode, [], waiting, offline_decode, [], [], requests, [*offline])
        partial = [request for request in online if request.phase is Phase.PREFILL]
        restoring = [request for request in (*online, *offline) if request.phase is Phase.RESTORING]
        fetched = [request for request in restoring if request.request_class is RequestClass.ONLINE]
        return cls(
            online_decode=online_decode,
            online_partial=partial,
            online_waiting=waiting,
            offline_decode=offline_decode,
            offline_partial=[request for request in offline if request.phase is Phase.PREFILL],
            restoring=restoring,
            online=online_decode.requests + partial + fetched,
            offline=list(offline),
        )

    @property
    def has_online(self) -> bool:
        """Whether any online request is live."""
        return bool(self.online or self.online_waiting)

    def online_filling(self, *, fetches: bool) -> list[Request]:
        """Online requests with prompt tokens left, oldest first.

        Args:
            fetches: The policy fetches requests whose KV is on the host: they are not among these.
        """
        waiting = [
            request for request in self.online_waiting if not (fetches and request.host_tokens)
        ]
        filling = self.online_partial + waiting
        filling.sort(key=lambda request: request.sequence)
        return filling


# A batch forgotten for its age counts as never admitted, which is nearly the same.
MAX_REMEMBERED = 256


def flex_room(snapshot: Snapshot, max_share: float) -> int:
    """Flex requests that may still get a slot while offline requests wait for one too."""
    resources = snapshot.resources
    allowed = int(max_share * (resources.total_slots - resources.reserved_slots))
    # Flex requests come first among them.
    held = bisect_left(
        snapshot.offline_running, RequestClass.OFFLINE, key=lambda request: request.request_class
    )
    return max(0, allowed - held)


class OfflineOrder:
    """Order of admissions, with a share for the batch that would starve.

    Args:
        min_share: Share of admissions kept for the batch served least; 0 turns it off.
    """

    def __init__(self, min_share: float) -> None:
        """Start with no admissions counted."""
        self._every = round(1.0 / min_share) if min_share > 0.0 else 0
        self._admissions = 0
        self._last_admitted: dict[str, int] = {}
        self._starved_for: tuple[int, int] = (-1, -1)
        self._starved_request: Request | None = None

    def waiting(self, snapshot: Snapshot) -> Iterator[Request]:
        """Waiting requests in admission order; stop consuming at the first that does not fit."""
        given: set[str] = set()
        every, asked = self._every, -1
        for request in snapshot.offline_waiting:
            # Asked once for each request that is admitted: a step may admit many of them.
            if every and self._admissions != asked and (self._admissions + 1) % every == 0:
                asked = self._admissions
                starved = self._starved(snapshot, given)
                if starved is not None and starved.rid not in given:
                    given.add(starved.rid)
                    yield starved
            if request.rid not in given:
                given.add(request.rid)
                yield request

    def admitted(self, request: Request) -> None:
        self._admissions += 1
        last = self._last_admitted
        last.pop(request.batch_id, None)
        last[request.batch_id] = self._admissions  # the dictionary stays ordered by recency
        if len(last) > MAX_REMEMBERED:
            del last[next(iter(last))]

    def _starved(self, snapshot: Snapshot, given: Container[str]) -> Request | None:
        """First request of the batch admitted least recently; None when there is one batch only.

        Requests that were given already have had their chance.

        Looked up once per change of the queue: the answer stands while the request waits.
        """
        state = (snapshot.offline_waiting_version, self._admissions)
        if state != self._starved_for:
            self._starved_for = state
            left = (request for request in snapshot.offline_waiting if request.rid not in given)
            self._starved_request = self._find_starved(left)
        return self._starved_request

    def _find_starved(self, requests: Iterable[Request]) -> Request | None:
        first: dict[str, Request] = {}
        for request in requests:
            if request.batch_id not in first and request.phase is not Phase.RETRACTED:
                first[request.batch_id] = request
        if len(first) < 2:
            return None
        last = self._last_admitted
        return min(
            first.values(), key=lambda request: (last.get(request.batch_id, 0), request.sequence)
        )


def retracted_requests(requests: Sequence[Request]) -> Iterator[Request]:
    """Retracted requests of a waiting queue in order, without looking at the others."""
    for request_class in (RequestClass.FLEX, RequestClass.OFFLINE):
        place = bisect_left(requests, request_class, key=lambda request: request.request_class)
        while place < len(requests):
            request = requests[place]
            if request.request_class is not request_class or request.phase is not Phase.RETRACTED:
                break
            yield request
            place += 1


# --- Whose step is next, where two kinds of work cannot share one.
#
# Two pairs can meet for which that holds:
#
# - offline prompts and online decoding requests, where one of the two asks for log-probabilities or
#   the executor cannot mix: prompts get a step of their own after one in which they were passed
#   over;
# - offline prompts and offline decoding requests, for the same reasons or because sharing does not
#   pay: decoding requests come first after a few steps of prompts that left them out.


# Steps in a row without anything offline, after which nobody waits for an offline request to end.
STALLED_STEPS = 16
# Steps of prompts in a row that decoding requests wait for. Strictly in turn would cost 2 % of
# the tokens on a CPU: more decoding requests share a step after a few prompts.
PATIENT_STEPS = 4


class StepAlternation:
    """What the last step left out, and the next one therefore begins with.

    Attributes:
        prompts_owed: Beside online decoding requests a prompt that cannot share a step with them
            came before any other.
        is_refused: The newest turn of such a prompt had no room for it.
        decode_owed: Offline decoding requests were left out for offline prompts a few times in a
            request.
    """

    def __init__(self) -> None:
        self.prompts_owed = self.decode_owed = self.is_refused = False
        self._passed_over = False
        self._idle_steps = self._prompt_steps = 0

    @property
    def is_stalled(self) -> bool:
        """Whether offline requests hold what others wait for and do not move beside online ones."""
        return self._idle_steps >= STALLED_STEPS

    def pass_over(self, builder: PlanBuilder) -> None:
        """A prompt cannot share the step."""
        self._passed_over = self._passed_over or not builder.has_chunks

    def close(self, builder: PlanBuilder, requests: RequestsByPhase) -> None:
        """The step has its offline requests."""
        self.prompts_owed, self._passed_over = self._passed_over, False
        moved = builder.num_offline > 0 or not requests.offline
        self._idle_steps = 0 if moved else self._idle_steps + 1
        self._prompt_steps = self._prompt_steps + 1 if self._is_left_out(builder, requests) else 0
        self.decode_owed = self._prompt_steps >= PATIENT_STEPS

    def _is_left_out(self, builder: PlanBuilder, requests: RequestsByPhase) -> bool:
        """Whether decoding requests wait for a step of prompts; one of many beside online requests.

        There is seldom time for all of them there.
        """
        if not builder.has_chunks or not builder.num_offline:
            return False
        ready, taken = requests.offline_decode.requests, builder.taken
        num_left = sum(request.rid not in taken for request in ready)
        return num_left >= max(1, len(ready) if builder.num_online else 1)
