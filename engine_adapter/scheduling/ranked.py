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
from engine_adapter.scheduling.request import Phase, RequestRow, new_pages, pages_for
from engine_adapter.scheduling.snapshot import ReadyRows, Snapshot

Rank = Callable[[RequestRow], tuple[float, ...]]
Reserve = Callable[[RequestRow], int]


def arrival(row: RequestRow) -> tuple[float, ...]:
    """First come, first served."""
    return (row.sequence,)


def whole_prompt(row: RequestRow) -> int:
    """Room for what is known of the request, and its next token."""
    return row.fill_tokens + 1


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

    def take_decode(self, rows: Sequence[RequestRow] | None = None) -> None:
        """A token for each decoding request; short of pages, the last of all give way.

        Args:
            rows: Those to take, in any order; all by default.
        """
        builder = self.builder
        ready = [row for row in self.holders if row.phase is Phase.DECODE]
        if rows is not None:
            wanted = {row.rid for row in rows}
            ready = [row for row in ready if row.rid in wanted]
        ready = [row for row in ready if row.rid not in builder.taken][: builder.rows_left]
        needed = sum(map(builder.decode_pages, ready))
        while ready and needed > builder.pages_left:
            if not self._give_way(after=ready[0], num_pages=needed - builder.pages_left):
                # All that run have a result on the way: the last rests, and can be taken from then.
                needed -= builder.decode_pages(ready.pop())
            gone = builder.taken
            ready = [row for row in ready if row.rid not in gone]
            needed = sum(map(builder.decode_pages, ready))
        for online in (True, False):
            side = [row for row in ready if row.is_online is online]
            if side:
                builder.decode_run(ReadyRows(side, builder.page_tokens), UNBOUNDED_S)

    # --- prompts -------------------------------------------------------------------------------

    def take_prompts(
        self,
        waiting: Iterable[RequestRow],
        *,
        whole: bool = False,
        displaces: bool = False,
        most: int = 1 << 30,
        begun: Iterable[RequestRow] | None = None,
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
        for row in self.holders if begun is None else begun:
            if row.phase is Phase.PREFILL and row.rid not in builder.taken:
                self._chunk(row, whole)
        room_pages = builder.pages_left - self._promised_pages()
        holding = len(self.holders)
        for row in waiting:
            if row.holds_slot:
                continue
            if builder.chunk_left <= 0 or builder.rows_left <= 0 or holding >= most:
                return
            if row.rid in builder.taken or not self._has_slot(row, displaces):
                continue
            wanted = self.pages_to_begin(row)
            if wanted > room_pages and displaces:
                before = builder.pages_left
                self._displace(row, wanted - room_pages)
                room_pages += builder.pages_left - before
            if wanted > room_pages and (holding or not builder.is_empty):
                return
            if self.swaps and row.host_tokens:
                taken = builder.prefetch(row)
            else:
                taken = self._chunk(row, whole)
            if not taken:
                if builder.has_decode and not row.can_mix:
                    continue
                return
            room_pages -= wanted
            holding += 1

    def pages_to_begin(self, row: RequestRow) -> int:
        """Device pages for all that the request keeps room for."""
        pages = pages_for(self._reserve(row), self.builder.page_tokens)
        return max(1, min(pages, self.snapshot.resources.total_pages) - row.device_pages)

    def _promised_pages(self) -> int:
        """Pages that slot holders keep room for and do not have."""
        gone = self.builder.taken if self.builder.retracted else ()
        return sum(
            max(0, pages_for(self._reserve(row), self.builder.page_tokens) - row.device_pages)
            for row in self.holders
            if row.rid not in gone or row.rid not in self.builder.retracted
        )

    def _chunk(self, row: RequestRow, whole: bool) -> int:
        builder = self.builder
        fits = row.remaining_tokens <= builder.chunk_left
        if whole and not fits and not row.holds_slot and builder.has_chunks:
            return 0
        return builder.chunk(row, self.budget_s)

    def _has_slot(self, row: RequestRow, displaces: bool) -> bool:
        if self.builder.has_slot_for(row):
            return True
        return displaces and self._give_way(after=row, needs_slot=not row.is_online)

    # --- who gives way -------------------------------------------------------------------------

    def _displace(self, row: RequestRow, num_pages: int) -> None:
        target = self.builder.pages_left + num_pages
        while (missing := target - self.builder.pages_left) > 0:
            if not self._give_way(after=row, num_pages=missing):
                return

    def _give_way(self, after: RequestRow, *, needs_slot: bool = False, num_pages: int = 0) -> bool:
        """Retract the last slot holder behind ``after`` that can be; False if none can.

        Swapped, it rests until its pages are on the host, and is copied meanwhile. Where ends can
        be taken alone, it gives up as many pages as are wanted and keeps the rest.
        """
        builder, rank = self.builder, self._rank(after)
        for row in reversed(self.holders):
            if self._rank(row) <= rank or (needs_slot and row.is_online):
                return False
            if row.rid in builder.taken or row.in_flight or row.host_pages_pending:
                continue
            if self._cut(row, num_pages):
                return True
            pages = uncopied_pages(row, self._host_page) if self.swaps else 0
            # Each that is retracted in this step may take two pages for its tail, and first.
            if pages > 0 and builder.host_left >= pages + 2 * len(self.holders):
                if builder.copy_left > 0:
                    builder.checkpoint([(row, pages)])
                    builder.rest(row)
                    continue
                return False
            builder.retract(row)
            return True
        return False

    def _cut(self, row: RequestRow, num_pages: int) -> bool:
        if not self.cuts or not num_pages or row.is_online or row.shared:
            return False
        return self.builder.cut(row, num_pages) > 0

    # --- what must not stand still -------------------------------------------------------------

    def go_on(self, waiting: Iterable[RequestRow] = ()) -> None:
        """Fetch what is being fetched; if nothing runs at all, the first has what it needs."""
        builder = self.builder
        fetching = [row for row in self.holders if row.phase is Phase.PREFETCHING]
        fetched = [row for row in fetching if row.rid not in builder.taken]
        moving = sum(builder.prefetch(row, self.fetch_keeps) > 0 for row in fetched)
        if not builder.is_empty or moving:
            return
        for row in [*self.holders, *waiting]:
            if row.rid in builder.taken or (not row.holds_slot and self.holders):
                continue
            if self._force(row):
                return

    def _force(self, row: RequestRow) -> bool:
        builder = self.builder
        num_tokens = 1 if row.phase is Phase.DECODE else self._next_tokens(row)
        pages = new_pages(row, num_tokens, builder.page_tokens)
        while builder.pages_left < pages and self._take_from_any(row):
            pass
        if row.phase is Phase.DECODE:
            return builder.decode(row, UNBOUNDED_S)
        if row.phase is Phase.PREFETCHING:
            return builder.prefetch(row) > 0
        return builder.chunk(row, UNBOUNDED_S) > 0

    def _next_tokens(self, row: RequestRow) -> int:
        if row.phase is Phase.PREFETCHING:
            return max(1, row.host_tokens - row.computed_tokens)
        return min(row.remaining_tokens, max(1, self.builder.chunk_left))

    def _take_from_any(self, but: RequestRow) -> bool:
        for row in reversed(self.holders):
            is_free = not (row.in_flight or row.host_pages_pending)
            if row is not but and is_free and row.rid not in self.builder.taken:
                self.builder.retract(row)
                return True
        return False
