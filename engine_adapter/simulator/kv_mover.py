"""Retracts, checkpoints and prefetches of the engine in memory."""

from __future__ import annotations

from engine_adapter.core.request import Phase, RequestRow
from engine_adapter.core.roster import Roster
from engine_adapter.simulator.kv_pool import KvPool


class KvMover:
    """Moves rows between device and host.

    Attributes:
        restored_tokens: Tokens brought back from the host so far.
    """

    def __init__(self, roster: Roster, pool: KvPool) -> None:
        """Bind the rows and the pages."""
        self.roster = roster
        self.pool = pool
        self.restored_tokens = 0

    def checkpoint(self, row: RequestRow, num_pages: int) -> None:
        """Begin a copy to the host."""
        self.pool.take_host(row, num_pages)
        row.host_pages_pending += num_pages

    def forget_uncomputed(self, row: RequestRow) -> None:
        """Undo copies that counted tokens a stopped step never computed."""
        excess = row.host_pages + row.host_pages_pending
        excess -= row.computed_tokens // self.pool.host_page_tokens
        undone = min(excess, row.host_pages_pending)
        if undone > 0:
            row.host_pages_pending -= undone
            self.pool.host.truncate(row.rid, row.host_pages + row.host_pages_pending)

    def retract(self, row: RequestRow) -> None:
        """Free the device pages; an unfinished tail page is copied first."""
        if row.in_flight or row.host_pages_pending:
            raise RuntimeError(f"{row.rid} was retracted with a step or a copy under way")
        was_decoding = row.phase is Phase.DECODE
        page = self.pool.host_page_tokens
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
        if was_decoding:
            row.fill_tokens = row.prompt_tokens + row.output_tokens

    def prefetch(self, row: RequestRow, num_pages: int) -> None:
        """Begin bringing the next host pages back."""
        if not row.holds_slot:
            self.roster.start(row.rid, Phase.PREFETCHING)
        row.prefetched_pages += num_pages
        tokens = min(row.prefetched_pages * self.pool.host_page_tokens, row.host_tokens)
        self.restored_tokens += tokens - row.computed_tokens
        row.computed_tokens = tokens
        self.pool.resize(row, tokens)

    def finish_copies(self) -> None:
        """Copies ordered with the step are committed, fetched rows may run."""
        page = self.pool.host_page_tokens
        for row in self.roster.rows.values():
            if row.host_pages_pending:
                row.host_pages += row.host_pages_pending
                row.host_pages_pending = 0
                row.host_tokens = row.host_pages * page
            if row.phase is Phase.PREFETCHING and row.computed_tokens == row.host_tokens:
                row.prefetched_pages = 0
                behind = row.fill_tokens - row.computed_tokens
                row.phase = Phase.DECODE if behind == 1 and row.output_tokens else Phase.PREFILL
                # A tail page that is not full will be written again; it leaves the host copy.
                row.host_pages = row.computed_tokens // page
                self.pool.host.truncate(row.rid, row.host_pages)
                row.host_tokens = row.host_pages * page

    def release(self, row: RequestRow) -> None:
        """Give everything a finished row holds back."""
        self.pool.release_device(row)
        self.pool.release_host(row)
