"""Retracts, checkpoints and prefetches of the engine in memory."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass

from engine_adapter.scheduling.request import Phase, RequestRow
from engine_adapter.scheduling.roster import Roster
from lab.simulator.kv_pool import KvPool


@dataclass(slots=True)
class _Copy:
    """Pages under way between device and host."""

    done_at_s: float
    row: RequestRow
    num_pages: int
    retracts: int


class KvMover:
    """Moves rows between device and host.

    Both directions of the link move pages one order after the other, each at its own time.

    Args:
        roster: The rows.
        pool: The pages.
        page_copy_s: Time one host page takes on the link.

    Attributes:
        restored_tokens: Tokens brought back from the host so far.
    """

    def __init__(self, roster: Roster, pool: KvPool, page_copy_s: float = 0.0) -> None:
        """Bind the rows and the pages."""
        self.roster = roster
        self.pool = pool
        self.restored_tokens = 0
        self._page_copy_s = page_copy_s
        self._out: deque[_Copy] = deque()
        self._in: deque[_Copy] = deque()
        self._fetching: dict[str, int] = {}
        self._retracts: dict[str, int] = {}
        self._cut: set[str] = set()  # their end is on the host, their beginning need not be

    def checkpoint(self, row: RequestRow, num_pages: int, now_s: float) -> None:
        """Begin a copy to the host."""
        self.pool.take_host(row, num_pages)
        row.host_pages_pending += num_pages
        self._order(self._out, row, num_pages, now_s)

    def forget_uncomputed(self, row: RequestRow) -> None:
        """Undo copies that counted tokens a stopped step never computed."""
        excess = row.host_pages + row.host_pages_pending
        excess -= row.computed_tokens // self.pool.host_page_tokens
        undone = min(excess, row.host_pages_pending)
        if undone > 0:
            row.host_pages_pending -= undone
            self.pool.host.truncate(row.rid, row.host_pages + row.host_pages_pending)

    def cut(self, row: RequestRow, keep_tokens: int, now_s: float) -> None:
        """Free the last device pages, copied first where the host lacks them.

        The host pool is charged for the whole request, as its pages are numbered from the
        beginning; the copies are those of the end alone.
        """
        page = self.pool.host_page_tokens
        kept, total = keep_tokens // page, -(-row.computed_tokens // page)
        if row.phase is Phase.PREFETCHING:
            copied = total - kept if row.rid in self._cut else 0
            self._lose_track(row)  # of what is being fetched
        else:
            copied = total - max(row.host_pages, kept)
            self.pool.take_host(row, total - row.host_pages)
            row.host_pages, row.host_tokens = total, row.computed_tokens
            self._cut.add(row.rid)
        if row.phase is Phase.DECODE:
            row.fill_tokens = row.prompt_tokens + row.output_tokens
        self._order(self._out, row, copied, now_s)
        self.pool.resize(row, keep_tokens)
        row.computed_tokens, row.prefetched_pages = keep_tokens, kept
        row.phase = Phase.PREFETCHING

    def retract(self, row: RequestRow) -> None:
        """Free the device pages; an unfinished tail page is copied first."""
        if row.in_flight or row.host_pages_pending:
            raise RuntimeError(f"{row.rid} was retracted with a step or a copy under way")
        was_decoding = row.phase is Phase.DECODE
        page = self.pool.host_page_tokens
        if row.rid in self._cut:
            self._cut.discard(row.rid)
            if row.computed_tokens >= 2 * page:  # too much to copy with the retract, as below
                self.pool.release_host(row)
        tail = row.computed_tokens - row.host_pages * page
        num_pages = -(-tail // page)
        # As the runtime does: the unfinished page, and one that the very last step completed.
        is_short = row.phase is not Phase.PREFETCHING and 0 < tail < 2 * page
        if is_short and self.pool.host_free_pages >= num_pages:
            self.pool.take_host(row, num_pages)
            row.host_pages += num_pages
            row.host_tokens = row.computed_tokens
        self.pool.release_device(row)
        self.roster.retract(row.rid)
        self.pool.prefixes.wait_again(row)
        self._lose_track(row)
        if was_decoding:
            row.fill_tokens = row.prompt_tokens + row.output_tokens

    def prefetch(self, row: RequestRow, num_pages: int, now_s: float) -> None:
        """Begin bringing the next host pages back."""
        if not row.holds_slot:
            self.roster.start(row.rid, Phase.PREFETCHING)
        row.prefetched_pages += num_pages
        tokens = min(row.prefetched_pages * self.pool.host_page_tokens, row.host_tokens)
        self.restored_tokens += tokens - row.computed_tokens
        row.computed_tokens = tokens
        self.pool.resize(row, tokens)
        self._fetching[row.rid] = self._fetching.get(row.rid, 0) + 1
        self._order(self._in, row, num_pages, now_s)

    @property
    def next_done_s(self) -> float | None:
        """When the next copy ends; None if none is under way."""
        ends = [queue[0].done_at_s for queue in (self._out, self._in) if queue]
        return min(ends, default=None)

    def finish_copies(self, now_s: float) -> None:
        """Copies that have ended are committed; rows fetched whole may run."""
        while self._out and self._out[0].done_at_s <= now_s:
            copy = self._out.popleft()
            row = copy.row
            # Fewer are left of it after a stop, none after the row's end.
            row.host_pages += (num := min(copy.num_pages, row.host_pages_pending))
            row.host_pages_pending -= num
            if num:
                row.host_tokens = row.host_pages * self.pool.host_page_tokens
        while self._in and self._in[0].done_at_s <= now_s:
            copy = self._in.popleft()
            if copy.retracts == self._retracts.get(copy.row.rid, 0):
                self._arrived(copy.row)

    def release(self, row: RequestRow) -> None:
        """Forget everything a row held."""
        self.pool.release_device(row)
        self.pool.release_host(row)
        self.pool.prefixes.forget(row)
        self._fetching.pop(row.rid, None)
        self._retracts.pop(row.rid, None)
        self._cut.discard(row.rid)

    def _lose_track(self, row: RequestRow) -> None:
        self._fetching.pop(row.rid, None)
        self._retracts[row.rid] = self._retracts.get(row.rid, 0) + 1

    def _order(self, queue: deque[_Copy], row: RequestRow, num_pages: int, now_s: float) -> None:
        begins_s = max(now_s, queue[-1].done_at_s) if queue else now_s
        done_at_s = begins_s + num_pages * self._page_copy_s
        queue.append(_Copy(done_at_s, row, num_pages, self._retracts.get(row.rid, 0)))

    def _arrived(self, row: RequestRow) -> None:
        if row.rid not in self._fetching:
            return
        self._fetching[row.rid] -= 1
        if self._fetching[row.rid] or row.computed_tokens != row.host_tokens:
            return
        del self._fetching[row.rid]
        page = self.pool.host_page_tokens
        row.prefetched_pages = 0
        behind = row.fill_tokens - row.computed_tokens
        row.phase = Phase.DECODE if behind == 1 and row.output_tokens else Phase.PREFILL
        if row.rid in self._cut:  # its beginning never was on the host, so its end is no prefix
            self._cut.discard(row.rid)
            self.pool.release_host(row)
            return
        # A tail page that is not full will be written again; it leaves the host copy.
        row.host_pages = row.computed_tokens // page
        self.pool.host.truncate(row.rid, row.host_pages)
        row.host_tokens = row.host_pages * page
