"""EcoServe: prompts and answers scheduled apart, memory by expected length (EcoServe, section 3).

Algorithm 1, every step. A request is a prompt task until its first token, then an answer task that
waits, with its KV, until memory for all of its expected answer is set aside for it. Prompts fill
what decoding leaves of the step; answers fill memory. While an answer finds none, prompts begin in
the reserve alone. In steps, each on top of the one before:

- ``ecoserve_d``: the two queues, and exact allocation: expected length times 1 + PADDING, in
  blocks, of a pool less RESERVE, which is for prompts and for answers that grow beyond it.
- ``ecoserve_sd``: answers of one expected length begin and end together; once memory is full others
  are chosen only when such a group has ended (time-synced batching, section 3.2).
- ``ecoserve_sdo``: both queues by deadline range, then memory held, then length, the longest first;
  the last gap gets the task that fits it best (section 3.4).
- ``ecoserve``: an answer uses the second half of its memory late, so an answer that ends before
  that is lent it; the second quarter, the second eighth and what guests use late likewise (KVC
  pipelining, section 3.3). What a guest leaves in time is lent again. One that is late gives way.

An overdue expectation ("predicted minus generated") is a block. Nobody is first for being online;
deadlines say it, from ``ecoserve_sdo`` on.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence

from engine_adapter.scheduling.builder import UNBOUNDED_S
from engine_adapter.scheduling.latency import LatencyModel
from engine_adapter.scheduling.plan import StepPlan
from engine_adapter.scheduling.policies.base import PolicyBase
from engine_adapter.scheduling.policies.settings import PolicySettings
from engine_adapter.scheduling.ranked import Ranked
from engine_adapter.scheduling.request import Phase, Request, pages_for
from engine_adapter.scheduling.snapshot import Snapshot

UNKNOWN_TOKENS = 256
"""Expected of a request nobody was asked about."""
BLOCK = 32
LENGTH_RANGE = 128
SLO_SCALE = 2.0


class EcoServeD(PolicyBase):
    """Two queues and exact allocation."""

    name = "ecoserve_d"
    synced = ordered = pipelined = False
    padding, reserve, buffer = 0.15, 0.03, 0.15

    def __init__(self, model: LatencyModel, settings: PolicySettings | None = None) -> None:
        """Nobody has memory set aside."""
        super().__init__(model, settings)
        self._ends: dict[str, int] = {}  # tokens up to which a running answer has memory
        self._group: dict[str, int] = {}  # of a running answer: those that began with it
        self._spans: dict[str, int] = {}  # tokens that were set aside for it when it began
        self._loans: dict[str, tuple[str, int]] = {}  # guest -> host and where that needs it back
        self._num_groups = 0
        self._is_full = False  # some answer found no memory when answers were last chosen
        self._last_was_prompts = False

    def plan(self, snapshot: Snapshot) -> StepPlan:
        """Algorithm 1."""
        builder = self._builder(snapshot)
        ended = self._settle(snapshot)
        ranked = Ranked(builder, self._place, self._end, swaps=True)
        answers = [request for request in ranked.holders if request.phase is Phase.DECODE]
        queue = [request for request in answers if request.rid not in self._ends]
        if self.pipelined:
            self._lend(list(queue), snapshot)
            queue = [request for request in queue if request.rid not in self._ends]
        self._is_full &= bool(queue)
        if queue and (ended or not self.synced or not self._is_full):
            self._begin(self._in_order(queue, snapshot), snapshot)
        running = [request for request in answers if request.rid in self._ends]
        ranked.holders.sort(key=self._place)
        if ranked.mixes or self._last_was_prompts:
            ranked.take_decode(running)
        waiting = [*snapshot.online_waiting, *snapshot.offline_waiting]
        if ranked.mixes or not builder.has_decode:
            self._take_prompts(ranked, waiting, snapshot, len(running))
        if not builder.has_chunks and not builder.has_decode:
            ranked.take_decode(running)
        self._last_was_prompts = builder.has_chunks and not builder.has_decode
        ranked.go_on(waiting)
        return builder.build(UNBOUNDED_S)

    # --- memory set aside --------------------------------------------------------------------

    def _end(self, request: Request) -> int:
        """Tokens the request keeps room for: guests none of their own, others to their end."""
        if request.rid in self._loans or not request.holds_slot:
            return request.computed_tokens if request.holds_slot else request.fill_tokens + 1
        return max(request.computed_tokens, self._ends.get(request.rid, 0))

    def _place(self, request: Request) -> tuple[float, ...]:
        """Who gives way last to first: hosts, guests, answers that wait, prompts."""
        if request.rid in self._loans:
            return (1, request.sequence)
        return (
            0 if request.rid in self._ends else 2 + (request.phase is not Phase.DECODE),
            request.sequence,
        )

    def _settle(self, snapshot: Snapshot) -> bool:
        """Forget those that ended and stop those at the end of their memory; any group ended?"""
        before = set(self._group.values())
        for rid in list(self._ends):
            request = snapshot.requests.get(rid)
            if request is None or request.phase is not Phase.DECODE:
                self._stop(rid)
        unclaimed = self._unclaimed(snapshot)
        for rid, end in list(self._ends.items()):
            if snapshot.requests[rid].computed_tokens < end:
                continue
            if unclaimed >= BLOCK:
                self._ends[rid] += BLOCK
                unclaimed -= BLOCK
            else:
                self._stop(rid)
        for guest, (host, limit) in list(self._loans.items()):
            if host not in self._ends:
                self._loans.pop(guest)  # the memory is free now, so it is the guest's
            elif snapshot.requests[host].computed_tokens >= limit:
                self._stop(guest)
        return bool(before - set(self._group.values()))

    def _stop(self, rid: str) -> None:
        for kept in (self._ends, self._spans, self._group, self._loans):
            kept.pop(rid, None)

    def _unclaimed(self, snapshot: Snapshot) -> int:
        """Tokens of the pool that nobody holds and nobody has set aside."""
        resources, requests = snapshot.resources, snapshot.requests
        hosts = [(rid, end) for rid, end in self._ends.items() if rid not in self._loans]
        owed = sum(max(0, end - requests[rid].computed_tokens) for rid, end in hosts)
        return resources.available_pages * resources.page_tokens - owed

    # --- answers -----------------------------------------------------------------------------

    def _left(self, request: Request) -> int:
        """Tokens still expected of an answer, padded, in blocks."""
        padded = (request.expected_output_tokens or UNKNOWN_TOKENS) * (1.0 + self.padding)
        return max(BLOCK, pages_for(int(padded) - request.output_tokens, BLOCK) * BLOCK)

    def _begin(self, queue: Sequence[Request], snapshot: Snapshot) -> None:
        """Answers in order, group by group, until memory is filled."""
        room = self._unclaimed(snapshot) - self._reserve_tokens(snapshot)
        groups: dict[int, list[Request]] = {}
        for request in queue:
            groups.setdefault(self._left(request) if self.synced else request.sequence, []).append(
                request
            )
        self._is_full = False
        for members in groups.values():
            self._num_groups += 1
            for request in members:
                left = self._left(request)
                if left > room:
                    self._is_full = True
                    break
                room -= left
                self._start(request, left)
        rest = [
            request
            for request in queue
            if request.rid not in self._ends and self._left(request) <= room
        ]
        if self.ordered and rest:  # the longest that fits the gap
            best = max(rest, key=lambda request: (self._left(request), -request.sequence))
            self._start(best, self._left(best))

    def _start(self, request: Request, left: int) -> None:
        self._ends[request.rid] = request.computed_tokens + left
        self._spans[request.rid] = left
        self._group[request.rid] = self._num_groups

    def _lend(self, rest: list[Request], snapshot: Snapshot) -> None:
        """Lend the second half, quarter, eighth ... of what each running answer has set aside.

        A guest must have ended, less a buffer, when its host comes to what it was lent.
        """
        rest.sort(key=lambda request: (self._left(request), request.sequence))
        lent, hosts = set(self._loans.values()), list(self._ends)
        for host in hosts:  # grows: guests lend too
            size = self._spans[host] // 2
            limit = self._ends[host] - size
            while size >= BLOCK and rest:
                until = limit - snapshot.requests[host].computed_tokens
                fits = min(size, until) - 2.0 * self.buffer * size
                place = bisect_right(rest, fits, key=self._left)
                if place and (host, limit) not in lent:
                    guest = rest.pop(place - 1)
                    self._start(guest, self._left(guest))
                    self._loans[guest.rid] = (host, limit)
                    hosts.append(guest.rid)
                size //= 2
                limit -= size

    # --- prompts and order -------------------------------------------------------------------

    def _take_prompts(
        self, ranked: Ranked, waiting: list[Request], snapshot: Snapshot, num_running: int
    ) -> None:
        builder = ranked.builder
        builder.chunk_left = max(builder.page_tokens, builder.chunk_left - num_running)
        room = self._unclaimed(snapshot)
        if self._is_full:  # what is left is the reserve, less what those that wait hold of it
            held = sum(
                request.computed_tokens
                for request in ranked.holders
                if request.rid not in self._ends
            )
            room = min(room, self._reserve_tokens(snapshot) - held)
        chosen: list[Request] = []
        for request in self._in_order(waiting, snapshot):
            if room <= 0 or (chosen and request.fill_tokens > min(room, builder.chunk_left)):
                if not self.ordered or room <= 0:
                    break
                continue  # a shorter one may fill the gap
            chosen.append(request)
            room -= request.fill_tokens
        ranked.take_prompts(chosen, whole=True)

    def _reserve_tokens(self, snapshot: Snapshot) -> int:
        pages = snapshot.resources.total_pages
        return int(self.reserve * pages * snapshot.resources.page_tokens)

    def _in_order(self, requests: Sequence[Request], snapshot: Snapshot) -> list[Request]:
        if not self.ordered:
            return sorted(requests, key=lambda request: request.sequence)
        return sorted(requests, key=lambda request: self._key(request, snapshot))

    def _key(self, request: Request, snapshot: Snapshot) -> tuple[int, int, int, int]:
        """Deadline range, memory held, length; the most memory and the longest first."""
        due_s = request.deadline_at_s
        if request.is_online:
            slo, tokens = snapshot.slo, request.expected_output_tokens or UNKNOWN_TOKENS
            due_s = request.arrival_at_s + SLO_SCALE * (slo.ttft_s + slo.tbt_s * tokens)
        left_s = due_s - snapshot.now_s
        urgency = 0 if left_s < 0.5 else 1 if left_s < 2.0 else 2
        length = self._left(request) if request.phase is Phase.DECODE else request.fill_tokens
        held = request.computed_tokens // LENGTH_RANGE
        return (urgency, -held, -(length // LENGTH_RANGE), request.sequence)


class EcoServeSd(EcoServeD):
    """And answers in time-synced groups."""

    name = "ecoserve_sd"
    synced = True


class EcoServeSdo(EcoServeSd):
    """And both queues in order."""

    name = "ecoserve_sdo"
    ordered = True


class EcoServe(EcoServeSdo):
    """And memory lent to guests."""

    name = "ecoserve"
    expects_lengths = True
    pipelined = True
