"""Incremental checkpoints: pages of a running request go to the host while it runs.

Only pages completed since the last call are copied (ConServe v1 section 4.4, v2 section 4.4), so a
retract copies nothing but the tail of less than one page: the device pages are free at once. With
the tail on the host the row later resumes as a decoding request, bit for bit where it was.

    KV of a row    |page 0|page 1|page 2|tail |
    while running  | host | host |      |     |   checkpoint() copies page 2 when ordered
    at a retract   | host | host | host |host |   park_tail() adds the last, partly filled page
"""

from __future__ import annotations

import time
from typing import Any

import torch

from engine_adapter.scheduling.plan import Checkpoint
from engine_adapter.sglang.host_pool import HOST_PAGE_TOKENS, HostPool
from engine_adapter.sglang.live_rows import LiveRow, LiveRows


class Checkpointer:
    """Copies pages of live rows to the host pool.

    Attributes:
        num_pages_stored: Pages copied so far, tails included.
        cpu_s: Thread CPU time spent here.
    """

    def __init__(self, scheduler: Any, pool: HostPool) -> None:
        """Checkpoint rows of this scheduler into ``pool``."""
        self._scheduler = scheduler
        self._pool = pool
        self.num_pages_stored = 0
        self.cpu_s = 0.0

    def checkpoint(self, orders: tuple[Checkpoint, ...], rows: LiveRows) -> None:
        """Copy the ordered pages; a row that is gone or a full pool skips its order."""
        if not orders:
            return
        started_s = time.thread_time()
        slots: list[torch.Tensor] = []
        pages: list[int] = []
        ledger = self._pool.ledger
        for order in orders:
            live = rows.get(order.rid)
            held = ledger.held(order.rid)
            if live is None or not live.row.holds_slot or order.from_page != held:
                continue
            last_page = min(order.from_page + order.num_pages, _written(live) // HOST_PAGE_TOKENS)
            new = ledger.extend(order.rid, last_page - order.from_page)
            if not new:
                continue
            begin, end = order.from_page * HOST_PAGE_TOKENS, last_page * HOST_PAGE_TOKENS
            slots.append(self._slots(live, begin, end))
            pages += new
            live.row.host_tokens = end
            live.row.host_pages = last_page
        if pages:
            self._pool.store(torch.cat(slots), pages)
            self.num_pages_stored += len(pages)
        self.cpu_s += time.thread_time() - started_s

    def park_tail(self, live: LiveRow) -> None:
        """Copy the last tokens of a row that is about to be retracted, if they are few.

        Few means the partly filled page and at most the page before it, which may have been
        completed by the very last step. With more missing the row is a candidate for
        recomputation and a retract copies nothing. The row has no step under way.
        """
        length, have = _written(live), live.row.host_tokens
        if not 0 < length - have < 2 * HOST_PAGE_TOKENS:
            return
        ledger = self._pool.ledger
        new = ledger.extend(live.rid, -(-(length - have) // HOST_PAGE_TOKENS))
        if not new:
            return
        started_s = time.thread_time()
        self._pool.store(self._slots(live, have, length), new)
        live.row.host_tokens = length
        live.row.host_pages = ledger.held(live.rid)
        self.num_pages_stored += len(new)
        self.cpu_s += time.thread_time() - started_s

    def drop_tail(self, live: LiveRow) -> None:
        """Forget a partly filled page: the row runs again and its tail grows."""
        full_pages = live.row.host_tokens // HOST_PAGE_TOKENS
        self._pool.ledger.truncate(live.rid, full_pages)
        live.row.host_tokens = full_pages * HOST_PAGE_TOKENS
        live.row.host_pages = full_pages

    def forget(self, live: LiveRow) -> None:
        """Release every host page of a row: it is over, or is computed anew."""
        self._pool.ledger.drop(live.rid)
        live.row.host_tokens = 0
        live.row.host_pages = 0

    def _slots(self, live: LiveRow, begin: int, end: int) -> torch.Tensor:
        table = self._scheduler.req_to_token_pool.req_to_token
        return table[live.req.req_pool_idx, begin:end].long()


def _written(live: LiveRow) -> int:
    """Tokens whose KV is final: every launched step wrote its slots in stream order."""
    return int(live.req.kv_committed_len)
