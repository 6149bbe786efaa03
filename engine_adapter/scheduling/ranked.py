"""A step in which every request, online or not, has one place in one order.

What the baselines of the papers do: slot holders first, in their order, then those that wait. Who
comes last gives way when pages run out. Three things differ from policy to policy and are asked of
it: the order, the tokens a request must have room for before it begins, and whether one that gives
way is copied to the host (swapped) or computed again.

The engine keeps some slots for online requests whatever a policy thinks: a request that is not
online and finds no slot is passed over, not waited for.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from operator import attrgetter

from engine_adapter.scheduling.builder import UNBOUNDED_S, PlanBuilder
from engine_adapter.scheduling.memory import uncopied_pages
from engine_adapter.scheduling.request import Phase, Request, new_pages, pages_for
from engine_adapter.scheduling.snapshot import DecodeReady, Snapshot

Rank = Callable[[Request], tuple[float, ...]]
Reserve = Callable[[Request], int]


def arrival(request: Request) -> tuple[float, ...]:
    return (request.sequence,)


def whole_prompt(request: Request) -> int:
    """Room for what is known of the request, and its next token."""
    return request.fill_tokens + 1


class Ranked:
    """Fills one step.

    Args:
        builder: The step.
        rank: Place of a request; the smallest comes first.
        reserve: Tokens in all that a request must have room for to begin, and keeps room for.
        swaps: Who gives way is copied to the host and fetched; otherwise computed again.
        cuts: Who is not online gives up its last pages alone, where the engine can take them.

    Attributes:
        holders: Slot holders in their order.
        mixes: Whether any of them may share a step with any other.
        budget_s: Bound of a step with prompt tokens; none by default.
        fetch_keeps: Device pages that fetching leaves free while something else runs.
    """

    def __init__(
        self,
        builder: PlanBuilder,
        rank: Rank = arrival,
        reserve: Reserve = whole_prompt,
        *,
        swaps: bool = False,
        cuts: bool = False,
    ) -> None:
        """Put the slot holders in order; nothing is taken yet."""
        self.builder = builder
        self.snapshot: Snapshot = builder.snapshot
        self._rank = rank
        self._reserve = reserve
        resources = self.snapshot.resources
        self.swaps = swaps and resources.copy_pages_per_step > 0
        self.cuts = cuts and self.snapshot.limits.cuts and resources.copy_pages_per_step > 0
        self.fetch_keeps = 0
        self._host_page = resources.host_page_tokens
        self.holders = sorted(self.snapshot.running, key=rank)
        limits = self.snapshot.limits
        self.budget_s = UNBOUNDED_S
        self.mixes = limits.can_mix and all(map(attrgetter("can_mix"), self.holders))

    # --- tokens of those that decode -----------------------------------------------------------

    def take_decode(self, requests: Sequence[Request] | None = None) -> None:
        """A token for each decoding request; short of pages, the last of all give way.

        Args:
            requests: Those to take, in any order; all by default.
        """
        builder = self.builder
        ready = [request for request in self.holders if request.phase is Phase.DECODE]
        if requests is not None:
            wanted = {request.rid for request in requests}
            ready = [request for request in ready if request.rid in wanted]
        ready = [request for request in ready if request.rid not in builder.taken][
            : builder.requests_left
        ]
        needed = sum(map(builder.decode_pages, ready))
        while ready and needed > builder.pages_left:
            if not self._give_way(after=ready[0], num_pages=needed - builder.pages_left):
                # All that run have a result on the way: the last rests, and can be taken from then.
                needed -= builder.decode_pages(ready.pop())
            gone = builder.taken
            ready = [request for request in ready if request.rid not in gone]
            needed = sum(map(builder.decode_pages, ready))
        for online in (True, False):
            side = [request for request in ready if request.is_online is online]
            if side:
                builder.decode_run(DecodeReady(side, builder.page_tokens), UNBOUNDED_S)

    # --- prompts -------------------------------------------------------------------------------

    def take_prompts(
        self,
        waiting: Iterable[Request],
        *,
        whole: bool = False,
        displaces: bool = False,
        most: int = 1 << 30,
        begun: Iterable[Request] | None = None,
    ) -> None:
        """Prompt tokens of those that have begun, then of those that wait.

        Args:
            waiting: Requests without a slot, in the order they may begin.
            whole: A prompt is not cut unless it is longer than any step.
            displaces: Who begins may take pages from slot holders behind it in the order.
            most: Slot holders at most.
            begun: Slot holders whose prompts may go on; all by default.
        """
        builder = self.builder
        for request in self.holders if begun is None else begun:
            if request.phase is Phase.PREFILL and request.rid not in builder.taken:
                self._chunk(request, whole)
        room_pages = builder.pages_left - self._promised_pages()
        holding = len(self.holders)
        for request in waiting:
            if request.holds_slot:
                continue
            if builder.chunk_left <= 0 or builder.requests_left <= 0 or holding >= most:
                return
            if request.rid in builder.taken or not self._has_slot(request, displaces):
                continue
            wanted = self.pages_to_begin(request)
            if wanted > room_pages and displaces:
                before = builder.pages_left
                self._displace(request, wanted - room_pages)
                room_pages += builder.pages_left - before
            if wanted > room_pages and (holding or not builder.is_empty):
                return
            if self.swaps and request.host_tokens:
                taken = builder.restore(request)
            else:
                taken = self._chunk(request, whole)
            if not taken:
                if builder.has_decode and not request.can_mix:
                    continue
                return
            room_pages -= wanted
            holding += 1

    def pages_to_begin(self, request: Request) -> int:
        """Device pages for all that the request keeps room for."""
        pages = pages_for(self._reserve(request), self.builder.page_tokens)
        return max(1, min(pages, self.snapshot.resources.total_pages) - request.device_pages)

    def _promised_pages(self) -> int:
        """Pages that slot holders keep room for and do not have."""
        gone = self.builder.taken if self.builder.retracted else ()
        return sum(
            max(
                0,
                pages_for(self._reserve(request), self.builder.page_tokens) - request.device_pages,
            )
            for request in self.holders
            if request.rid not in gone or request.rid not in self.builder.retracted
        )

    def _chunk(self, request: Request, whole: bool) -> int:
        builder = self.builder
        fits = request.remaining_tokens <= builder.chunk_left
        if whole and not fits and not request.holds_slot and builder.has_chunks:
            return 0
        return builder.chunk(request, self.budget_s)

    def _has_slot(self, request: Request, displaces: bool) -> bool:
        if self.builder.has_slot_for(request):
            return True
        return displaces and self._give_way(after=request, needs_slot=not request.is_online)

    # --- who gives way -------------------------------------------------------------------------

    def _displace(self, request: Request, num_pages: int) -> None:
        target = self.builder.pages_left + num_pages
        while (missing := target - self.builder.pages_left) > 0:
            if not self._give_way(after=request, num_pages=missing):
                return

    def _give_way(self, after: Request, *, needs_slot: bool = False, num_pages: int = 0) -> bool:
        """Retract the last slot holder behind ``after`` that can be; False if none can.

        Swapped, it rests until its pages are on the host, and is copied meanwhile. Where ends can
        be taken alone, it gives up as many pages as are wanted and keeps the rest.
        """
        builder, rank = self.builder, self._rank(after)
        for request in reversed(self.holders):
            if self._rank(request) <= rank or (needs_slot and request.is_online):
                return False
            if request.rid in builder.taken or request.in_flight or request.host_pages_pending:
                continue
            if self._cut(request, num_pages):
                return True
            pages = uncopied_pages(request, self._host_page) if self.swaps else 0
            # Each that is retracted in this step may take two pages for its tail, and first.
            if pages > 0 and builder.host_left >= pages + 2 * len(self.holders):
                if builder.copy_left > 0:
                    builder.checkpoint([(request, pages)])
                    builder.rest(request)
                    continue
                return False
            builder.retract(request)
            return True
        return False

    def _cut(self, request: Request, num_pages: int) -> bool:
        if not self.cuts or not num_pages or request.is_online or request.shared:
            return False
        return self.builder.cut(request, num_pages) > 0

    # --- what must not stand still -------------------------------------------------------------

    def go_on(self, waiting: Iterable[Request] = ()) -> None:
        """Fetch what is being fetched; if nothing runs at all, the first has what it needs."""
        builder = self.builder
        fetching = [request for request in self.holders if request.phase is Phase.RESTORING]
        fetched = [request for request in fetching if request.rid not in builder.taken]
        moving = sum(builder.restore(request, self.fetch_keeps) > 0 for request in fetched)
        if not builder.is_empty or moving:
            return
        for request in [*self.holders, *waiting]:
            if request.rid in builder.taken or (not request.holds_slot and self.holders):
                continue
            if self._force(request):
                return

    def _force(self, request: Request) -> bool:
        builder = self.builder
        num_tokens = 1 if request.phase is Phase.DECODE else self._next_tokens(request)
        pages = new_pages(request, num_tokens, builder.page_tokens)
        while builder.pages_left < pages and self._take_from_any(request):
            pass
        if request.phase is Phase.DECODE:
            return builder.decode(request, UNBOUNDED_S)
        if request.phase is Phase.RESTORING:
            return builder.restore(request) > 0
        return builder.chunk(request, UNBOUNDED_S) > 0

    def _next_tokens(self, request: Request) -> int:
        if request.phase is Phase.RESTORING:
            return max(1, request.host_tokens - request.computed_tokens)
        return min(request.remaining_tokens, max(1, self.builder.chunk_left))

    def _take_from_any(self, but: Request) -> bool:
        for request in reversed(self.holders):
            is_free = not (request.in_flight or request.host_pages_pending)
            if request is not but and is_free and request.rid not in self.builder.taken:
                self.builder.retract(request)
                return True
        return False
