"""Retracts, checkpoints and restores of the engine in memory."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass

from engine_adapter.scheduling.request import Phase, Request
from engine_adapter.scheduling.roster import Roster
from lab.simulator.kv_pool import KvPool


@dataclass(slots=True)
class _Copy:
    """Pages under way between device and host."""

    done_at_s: float
    request: Request
    num_pages: int
    retracts: int


class KvMover:
    """Moves requests between device and host.

    Both directions of the link move pages one order after the other, each at its own time.

    Args:
        roster: The requests.
        pool: The pages.
        page_copy_s: Time one host page takes on the link.

    Attributes:
        restored_tokens: Tokens brought back from the host so far.
    """

    def __init__(self, roster: Roster, pool: KvPool, page_copy_s: float = 0.0) -> None:
        """Bind the requests and the pages."""
        self.roster = roster
        self.pool = pool
        self.restored_tokens = 0
        self._page_copy_s = page_copy_s
        self._out: deque[_Copy] = deque()
        self._in: deque[_Copy] = deque()
        self._fetching: dict[str, int] = {}
        self._retracts: dict[str, int] = {}
        self._cut: set[str] = set()  # their end is on the host, their beginning need not be

    def checkpoint(self, request: Request, num_pages: int, now_s: float) -> None:
        """Begin a copy to the host."""
        self.pool.take_host(request, num_pages)
        request.host_pages_pending += num_pages
        self._order(self._out, request, num_pages, now_s)

    def forget_uncomputed(self, request: Request) -> None:
        """Undo copies that counted tokens a stopped step never computed."""
        excess = request.host_pages + request.host_pages_pending
        excess -= request.computed_tokens // self.pool.host_page_tokens
        undone = min(excess, request.host_pages_pending)
        if undone > 0:
            request.host_pages_pending -= undone
            self.pool.host.truncate(request.rid, request.host_pages + request.host_pages_pending)

    def cut(self, request: Request, keep_tokens: int, now_s: float) -> None:
        """Free the last device pages, copied first where the host lacks them.

        The host pool is charged for the whole request, as its pages are numbered from the
        beginning; the copies are those of the end alone.
        """
        page = self.pool.host_page_tokens
        kept, total = keep_tokens // page, -(-request.computed_tokens // page)
        if request.phase is Phase.RESTORING:
            copied = total - kept if request.rid in self._cut else 0
            self._lose_track(request)  # of what is being fetched
        else:
            copied = total - max(request.host_pages, kept)
            self.pool.take_host(request, total - request.host_pages)
            request.host_pages, request.host_tokens = total, request.computed_tokens
            self._cut.add(request.rid)
        if request.phase is Phase.DECODE:
            request.fill_tokens = request.prompt_tokens + request.output_tokens
        self._order(self._out, request, copied, now_s)
        self.pool.resize(request, keep_tokens)
        request.computed_tokens, request.restored_pages = keep_tokens, kept
        request.phase = Phase.RESTORING

    def retract(self, request: Request) -> None:
        """Free the device pages; an unfinished tail page is copied first."""
        if request.in_flight or request.host_pages_pending:
            raise RuntimeError(f"{request.rid} was retracted with a step or a copy under way")
        was_decoding = request.phase is Phase.DECODE
        page = self.pool.host_page_tokens
        if request.rid in self._cut:
            self._cut.discard(request.rid)
            if request.computed_tokens >= 2 * page:  # too much to copy with the retract, as below
                self.pool.release_host(request)
        tail = request.computed_tokens - request.host_pages * page
        num_pages = -(-tail // page)
        # As the runtime does: the unfinished page, and one that the very last step completed.
        is_short = request.phase is not Phase.RESTORING and 0 < tail < 2 * page
        if is_short and self.pool.host_free_pages >= num_pages:
            self.pool.take_host(request, num_pages)
            request.host_pages += num_pages
            request.host_tokens = request.computed_tokens
        self.pool.release_device(request)
        self.roster.retract(request.rid)
        self.pool.prefixes.wait_again(request)
        self._lose_track(request)
        if was_decoding:
            request.fill_tokens = request.prompt_tokens + request.output_tokens

    def restore(self, request: Request, num_pages: int, now_s: float) -> None:
        """Begin bringing the next host pages back."""
        if not request.holds_slot:
            self.roster.start(request.rid, Phase.RESTORING)
        request.restored_pages += num_pages
        tokens = min(request.restored_pages * self.pool.host_page_tokens, request.host_tokens)
        self.restored_tokens += tokens - request.computed_tokens
        request.computed_tokens = tokens
        self.pool.resize(request, tokens)
        self._fetching[request.rid] = self._fetching.get(request.rid, 0) + 1
        self._order(self._in, request, num_pages, now_s)

    @property
    def next_done_s(self) -> float | None:
        """When the next copy ends; None if none is under way."""
        ends = [queue[0].done_at_s for queue in (self._out, self._in) if queue]
        return min(ends, default=None)

    def finish_copies(self, now_s: float) -> None:
        """Copies that have ended are committed; requests fetched whole may run."""
        while self._out and self._out[0].done_at_s <= now_s:
            copy = self._out.popleft()
            request = copy.request
            # Fewer are left of it after a stop, none after the request's end.
            request.host_pages += (num := min(copy.num_pages, request.host_pages_pending))
            request.host_pages_pending -= num
            if num:
                request.host_tokens = request.host_pages * self.pool.host_page_tokens
        while self._in and self._in[0].done_at_s <= now_s:
            copy = self._in.popleft()
            if copy.retracts == self._retracts.get(copy.request.rid, 0):
                self._arrived(copy.request)

    def release(self, request: Request) -> None:
        """Forget everything a request held."""
        self.pool.release_device(request)
        self.pool.release_host(request)
        self.pool.prefixes.forget(request)
        self._fetching.pop(request.rid, None)
        self._retracts.pop(request.rid, None)
        self._cut.discard(request.rid)

    def _lose_track(self, request: Request) -> None:
        self._fetching.pop(request.rid, None)
        self._retracts[request.rid] = self._retracts.get(request.rid, 0) + 1

    def _order(self, queue: deque[_Copy], request: Request, num_pages: int, now_s: float) -> None:
        begins_s = max(now_s, queue[-1].done_at_s) if queue else now_s
        done_at_s = begins_s + num_pages * self._page_copy_s
        queue.append(_Copy(done_at_s, request, num_pages, self._retracts.get(request.rid, 0)))

    def _arrived(self, request: Request) -> None:
        if request.rid not in self._fetching:
            return
        self._fetching[request.rid] -= 1
        if self._fetching[request.rid] or request.computed_tokens != request.host_tokens:
            return
        del self._fetching[request.rid]
        page = self.pool.host_page_tokens
        request.restored_pages = 0
        behind = request.fill_tokens - request.computed_tokens
        request.phase = Phase.DECODE if behind == 1 and request.output_tokens else Phase.PREFILL
        if request.rid in self._cut:  # its beginning never was on the host, so its end is no prefix
            self._cut.discard(request.rid)
            self.pool.release_host(request)
            return
        # A tail page that is not full will be written again; it leaves the host copy.
        request.host_pages = request.computed_tokens // page
        self.pool.host.truncate(request.rid, request.host_pages)
        request.host_tokens = request.host_pages * page
