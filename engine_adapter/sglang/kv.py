"""KV on the host: pages of running requests go there, retracted requests come back from there."""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING, Any

import torch
from sglang.srt.managers.overlap_utils import RelayPayload
from sglang.srt.mem_cache.common import evict_from_tree_cache
from sglang.srt.mem_cache.radix_cache import RadixKey

from coserve_kernels.launch import page_mover
from engine_adapter.runtime_settings import RuntimeSettings, SettingError
from engine_adapter.scheduling.host_ledger import HostLedger
from engine_adapter.scheduling.plan import Checkpoint, Restore
from engine_adapter.scheduling.request import Phase
from engine_adapter.sglang.cuda_pass import emulated_pass, pass_stream
from engine_adapter.sglang.forms import HOST_PAGE_TOKENS
from engine_adapter.sglang.host_memory import fair_bytes, gpus_of_host, lock_in_blocks, turn
from engine_adapter.sglang.live_requests import LiveRequest, LiveRequests
from engine_adapter.sglang.safepoints import RankAgreement
from engine_adapter.sglang.settings import free_bytes, total_bytes
from engine_adapter.sglang.upload import upload
from engine_adapter.sglang.versions.installed import seam

if TYPE_CHECKING:
    from sglang.srt.managers.scheduler import Scheduler

# --- Host memory for KV checkpoints: fixed pages of 16 tokens, all layers of a token together.
#
# A host page is one contiguous block ``[sides, layers, page tokens, heads, head dim]`` (keys, then
# values; latent KV has one side), so on CUDA a run of pages is one transfer. The pool is allocated
# once and never grows; when it is full nothing more is checkpointed and a retract falls back to
# recomputation (:mod:`engine_adapter.scheduling.host_ledger`).


class HostPool:
    """Pages for KV checkpoints.

    Attributes:
        ledger: Which page belongs to which request.
        page_bytes: Size of one page.
    """

    def __init__(
        self,
        sides: Sequence[list[torch.Tensor]],
        num_pages: int,
        compute_stream: Any = None,
        other_streams: Sequence[Any] = (),
        memory: torch.Tensor | None = None,
    ) -> None:
        """Allocate ``num_pages`` pages shaped like the device pool's tokens.

        Args:
            sides: The device pool (:func:`sides_of`); empty for a pool that is not copied, which
                has no pages.
            num_pages: Capacity in pages.
            compute_stream: Stream of the forward passes on CUDA; None: the current one.
            other_streams: Streams of CUDA that copies must not be on.
            memory: Bytes to lay the pages in, at least as many as they take; None: new memory.
        """
        self.ledger = HostLedger(num_pages)
        self.page_bytes = 0
        self._sides = sides
        if not sides:
            return
        first = sides[0][0]
        dtype, page = first.dtype, (len(sides), len(sides[0]), HOST_PAGE_TOKENS, *first.shape[1:])
        if memory is None:
            self._pages = torch.empty((num_pages, *page), dtype=dtype)
        else:
            num_bytes = num_pages * math.prod(page) * dtype.itemsize
            self._pages = memory[:num_bytes].view(dtype).view(num_pages, *page)
        self.page_bytes = self._pages[0].numel() * self._pages.element_size() if num_pages else 0
        self._mover = page_mover(sides, self._pages, compute_stream, other_streams)

    def store(self, slots: torch.Tensor, pages: list[int]) -> None:
        """Copy device KV to host pages.

        Args:
            slots: Device slots of consecutive tokens, int64; the last page may be partly filled.
            pages: Host pages to fill, ``ceil(len(slots) / 16)`` of them.
        """
        self._mover.store(slots, pages)

    def load(self, slots: torch.Tensor, pages: list[int], first_token: int = 0) -> None:
        """Copy host pages back to the device.

        Args:
            slots: Device slots to fill, int64, consecutive tokens.
            pages: Host pages to read.
            first_token: Offset of the first token inside the first page.
        """
        self._mover.load(slots, pages, first_token)

    def tokens(self, pages: list[int], num_tokens: int) -> torch.Tensor:
        """Content of the pages, shape [sides, layers, num_tokens, heads, dim]; for tests."""
        self._mover.wait()
        block = self._pages[torch.tensor(pages, dtype=torch.int64)]
        flat = block.permute(1, 2, 0, 3, 4, 5).flatten(2, 3)
        return flat[:, :, :num_tokens]

    def device_tokens(self, slots: torch.Tensor) -> torch.Tensor:
        """Device KV in the same shape as :meth:`tokens`; for tests."""
        return torch.stack(
            [torch.stack([layer[slots] for layer in side]) for side in self._sides]
        ).cpu()


def sides_of(kv_pool: Any) -> list[list[torch.Tensor]]:
    """The buffers of SGLang's KV pool, by layer: keys and values, or the latent alone."""
    latent = getattr(kv_pool, "kv_buffer", None)
    return [list(kv_pool.k_buffer), list(kv_pool.v_buffer)] if latent is None else [list(latent)]


def host_pool(
    scheduler: Scheduler, settings: RuntimeSettings, agreement: RankAgreement, *, copies: bool
) -> HostPool:
    """A pool of the configured size, or of what memory allows.

    Args:
        scheduler: SGLang's.
        settings: As the process was started.
        agreement: Keeps the ranks together.
        copies: Whether KV of this form is copied; else the pool has no pages.

    Raises:
        SettingError: It does not fit.
    """
    if not copies:
        return HostPool([], 0)
    sides = sides_of(scheduler.token_to_kv_pool_allocator.get_kvcache())
    first = sides[0][0]
    token_bytes = len(sides) * len(sides[0]) * first[0].numel() * first.element_size()
    is_pinned = scheduler.device == "cuda"
    with turn() if is_pinned else nullcontext():
        tokens = _tokens_allowed(scheduler, settings, agreement, token_bytes, pinned=is_pinned)
        memory = page_locked(tokens * token_bytes) if is_pinned else None
    if memory is not None:
        tokens = memory.numel() // token_bytes
    # Pools of the same size on every rank: a page id means the same tokens everywhere.
    num_pages = agreement.lowest(tokens // HOST_PAGE_TOKENS)
    streams = (scheduler.forward_stream, seam.copy_stream(scheduler)) if is_pinned else ()
    pool = HostPool(sides, num_pages, pass_stream(scheduler), streams, memory)
    emulated = emulated_pass(scheduler.tp_worker.model_runner)
    return emulated.charging(pool, HOST_PAGE_TOKENS) if emulated is not None else pool


def _tokens_allowed(
    scheduler: Scheduler,
    settings: RuntimeSettings,
    agreement: RankAgreement,
    token_bytes: int,
    *,
    pinned: bool,
) -> int:
    """Tokens of this rank's pool: as configured, or a fair share of what is free.

    Raises:
        SettingError: What is configured does not fit.
    """
    free = free_bytes()
    tokens = settings.host_kv_tokens
    if tokens is None:
        most = fair_bytes(
            free=free,
            total=total_bytes(),
            ranks=agreement.size,
            host_gpus=gpus_of_host(),
            pinned=pinned,
        )
        return int(min(2 * scheduler.max_total_num_tokens, most // token_bytes))
    # Every rank has a pool of its own in the same memory.
    each = free // agreement.size
    if tokens * token_bytes > each:
        raise SettingError(
            f"COSERVE_HOST_KV_TOKENS={tokens} needs {tokens * token_bytes / 2**30:.1f} GiB and "
            f"{each / 2**30:.1f} GiB are free; give at most {each // token_bytes}"
        )
    return tokens


class CudaPageLocks:
    """Locks memory for the current CUDA device."""

    def lock(self, address: int, num_bytes: int) -> bool:
        locked = int(torch.cuda.cudart().cudaHostRegister(address, num_bytes, 0)) == 0
        if not locked:
            try:  # the refusal would be told by the next kernel instead
                torch.zeros(1, device="cuda").add_(1)
            except RuntimeError:
                return False
        return locked

    def unlock(self, address: int) -> None:
        torch.cuda.cudart().cudaHostUnregister(address)


def page_locked(num_bytes: int) -> torch.Tensor:
    """Bytes that CUDA copies from and to by itself; fewer where the system refuses more."""
    if not num_bytes:
        return torch.empty(0, dtype=torch.uint8)
    memory, locked = lock_in_blocks(
        num_bytes,
        CudaPageLocks(),
        lambda made: torch.frombuffer(made, dtype=torch.uint8).data_ptr(),
    )
    return torch.frombuffer(memory, dtype=torch.uint8)[:locked]


# --- Incremental checkpoints: pages of a running request go to the host while it runs.
#
# Only pages completed since the last call are copied (ConServe v1 section 4.4, v2 section 4.4), so
# a retract copies nothing but the tail of less than one page: the device pages are free at once.
# With the tail on the host the request later resumes as a decoding request, bit for bit where it
# was.
#
#     KV of a request    |page 0|page 1|page 2|tail |
#     while running  | host | host |      |     |   checkpoint() copies page 2 when ordered
#     at a retract   | host | host | host |host |   park_tail() adds the last, partly filled page


class Checkpointer:
    """Copies pages of live requests to the host pool.

    Attributes:
        pool: Pages on the host.
        num_pages_stored: Pages copied so far, tails included.
        cpu_s: Thread CPU time spent here.
    """

    def __init__(self, scheduler: Scheduler, pool: HostPool) -> None:
        """Checkpoint requests of this scheduler into ``pool``."""
        self._scheduler = scheduler
        self.pool = pool
        self.num_pages_stored = 0
        self.cpu_s = 0.0

    def checkpoint(self, orders: tuple[Checkpoint, ...], requests: LiveRequests) -> None:
        """Copy the ordered pages; a request that is gone or a full pool skips its order."""
        if not orders:
            return
        started_s = time.thread_time()
        slots: list[torch.Tensor] = []
        pages: list[int] = []
        ledger = self.pool.ledger
        for order in orders:
            live = requests.get(order.rid)
            held = ledger.held(order.rid)
            if live is None or not live.request.holds_slot or order.from_page != held:
                continue
            last_page = min(order.from_page + order.num_pages, _written(live) // HOST_PAGE_TOKENS)
            new = ledger.extend(order.rid, last_page - order.from_page)
            if not new:
                continue
            begin, end = order.from_page * HOST_PAGE_TOKENS, last_page * HOST_PAGE_TOKENS
            slots.append(self._slots(live, begin, end))
            pages += new
            live.request.host_tokens = end
            live.request.host_pages = last_page
        if pages:
            self.pool.store(torch.cat(slots), pages)
            self.num_pages_stored += len(pages)
        self.cpu_s += time.thread_time() - started_s

    def park_tail(self, live: LiveRequest) -> None:
        """Copy the last tokens of a request that is about to be retracted, if they are few.

        Few means the partly filled page and at most the page before it, which may have been
        completed by the very last step. With more missing the request is a candidate for
        recomputation and a retract copies nothing. The request has no step under way.
        """
        length, have = _written(live), live.request.host_tokens
        if not 0 < length - have < 2 * HOST_PAGE_TOKENS:
            return
        ledger = self.pool.ledger
        new = ledger.extend(live.rid, -(-(length - have) // HOST_PAGE_TOKENS))
        if not new:
            return
        started_s = time.thread_time()
        self.pool.store(self._slots(live, have, length), new)
        live.request.host_tokens = length
        live.request.host_pages = ledger.held(live.rid)
        self.num_pages_stored += len(new)
        self.cpu_s += time.thread_time() - started_s

    def drop_tail(self, live: LiveRequest) -> None:
        """Forget a partly filled page: the request runs again and its tail grows."""
        full_pages = live.request.host_tokens // HOST_PAGE_TOKENS
        self.pool.ledger.truncate(live.rid, full_pages)
        live.request.host_tokens = full_pages * HOST_PAGE_TOKENS
        live.request.host_pages = full_pages

    def forget(self, live: LiveRequest) -> None:
        """Release every host page of a request: it is over, or is computed anew."""
        self.pool.ledger.drop(live.rid)
        live.request.host_tokens = 0
        live.request.host_pages = 0

    def _slots(self, live: LiveRequest, begin: int, end: int) -> torch.Tensor:
        table = self._scheduler.req_to_token_pool.req_to_token
        return table[seam.slot(live.req), begin:end].long()


def _written(live: LiveRequest) -> int:
    """Tokens whose KV is final: every launched step wrote its slots in stream order."""
    return seam.kv_len(live.req)


# --- Bring a retracted request back from the host and let it go on as if it had only been parked.
#
# Pages come back in the order and in the portions a plan asks for. Once all are there the request
# is rebuilt from its record: KV length, the last token in SGLang's relay buffer, and it decodes
# again. No prefill kernel runs, nothing is computed twice, and the KV is the one that was written
# before: greedy output is the same bit for bit, in bfloat16 too.


class Restorer:
    """Restores requests from the host pool.

    Attributes:
        num_tokens_restored: Tokens copied back.
        num_requests_restored: Requests that re-entered with everything they had computed.
        cpu_s: Thread CPU time spent here.
    """

    def __init__(self, scheduler: Scheduler, checkpointer: Checkpointer) -> None:
        """Restore requests of this scheduler out of the checkpointer's pool."""
        self._scheduler = scheduler
        self._checkpointer = checkpointer
        self._pool = checkpointer.pool
        self.num_tokens_restored = 0
        self.num_requests_restored = 0
        self.cpu_s = 0.0

    def restore(self, orders: tuple[Restore, ...], requests: LiveRequests) -> None:
        """Carry out restore orders; the driver has checked slots and pages."""
        if not orders:
            return
        started_s = time.thread_time()
        decoding: list[LiveRequest] = []
        for order in orders:
            live = requests.get(order.rid)
            if live is None:
                continue
            if order.from_page == 0:
                self._take_slot(live, requests, order.num_pages * HOST_PAGE_TOKENS)
            self._restore(live, order.from_page + order.num_pages)
            if live.request.restored_pages >= self._pool.ledger.held(live.rid):
                self._re_enter(live)
                if live.request.phase is Phase.DECODE:
                    decoding.append(live)
        admit_as_decode_requests(self._scheduler, decoding)
        self.cpu_s += time.thread_time() - started_s

    def _take_slot(self, live: LiveRequest, requests: LiveRequests, promised_tokens: int) -> None:
        """Give the request a slot and lock the part of its prefix the tree still has.

        No more than the promised tokens are locked: locked pages are no longer available.
        """
        s, req = self._scheduler, live.req
        seam.refresh_fill_ids(req)
        key = RadixKey(
            token_ids=req.full_untruncated_fill_ids,
            extra_key=req.extra_key,
            limit=min(promised_tokens, live.request.host_tokens),
        )
        limit = seam.start_on_prefix(s, req, key)
        s.waiting_queue.remove(req)
        requests.start(live, Phase.RESTORING)
        live.request.computed_tokens = limit
        live.request.device_pages = -(-limit // s.page_size)
        live.request.restored_pages = 0

    def _restore(self, live: LiveRequest, up_to_page: int) -> None:
        s, req = self._scheduler, live.req
        begin = seam.kv_len(req)
        end = min(up_to_page * HOST_PAGE_TOKENS, live.request.host_tokens)
        live.request.restored_pages = up_to_page
        if end <= begin:
            return
        # Whole device pages: the tail of the request grows into the last one.
        num_slots = -(-end // s.page_size) * s.page_size - begin
        evict_from_tree_cache(s.tree_cache, num_slots)
        slots = s.token_to_kv_pool_allocator.alloc(num_slots)
        if slots is None:
            raise RuntimeError(f"no KV slots for the restore of {live.rid}")
        slots = slots[: end - begin].to(torch.int64)
        first_page = begin // HOST_PAGE_TOKENS
        pages = self._pool.ledger.pages(live.rid, first_page, up_to_page - first_page)
        self._pool.load(slots, pages, begin - first_page * HOST_PAGE_TOKENS)
        s.req_to_token_pool.write((seam.slot(req), slice(begin, end)), slots.to(torch.int32))
        seam.set_kv_len(req, end)
        live.request.computed_tokens = end
        live.request.device_pages = -(-end // s.page_size)
        self.num_tokens_restored += end - begin

    def _re_enter(self, live: LiveRequest) -> None:
        s, req, request = self._scheduler, live.req, live.request
        end = seam.kv_len(req)
        seam.refresh_fill_ids(req)
        seam.set_extend(req, end, end)
        req.already_computed = end
        self._checkpointer.drop_tail(live)
        if req.output_ids and end == request.fill_tokens - 1:
            request.phase = Phase.DECODE
            self.num_requests_restored += 1
        else:
            request.phase = Phase.PREFILL
            seam.prefix_in_table(s, req, end)


def admit_as_decode_requests(scheduler: Scheduler, lives: list[LiveRequest]) -> None:
    """Make requests that lost their place decode again, each from its own last token.

    SGLang clears ``is_retracted`` only when a request is prefilled; a decoding request that still
    carries it never emits again with the overlap loop.
    """
    if not lives:
        return
    reqs = [live.req for live in lives]
    for req in reqs:
        req.is_retracted = False
    slots = upload([seam.slot(req) for req in reqs], scheduler.device)
    tokens = upload([req.output_ids[-1] for req in reqs], scheduler.device)
    with _behind_passes(scheduler, slots, tokens):
        scheduler.future_map.stash(slots, RelayPayload(bonus_tokens=tokens))


def _behind_passes(scheduler: Scheduler, *inputs: torch.Tensor) -> AbstractContextManager[Any]:
    """Run after the launched pass: it relays the last token of whoever had the slot before."""
    stream = pass_stream(scheduler)
    if stream is None:
        return nullcontext()
    device = torch.get_device_module(scheduler.device)
    stream.wait_stream(device.current_stream())
    if hasattr(stream, "cuda_stream"):  # elsewhere nothing of it is out of order
        for tensor in inputs:
            tensor.record_stream(stream)
    behind: AbstractContextManager[Any] = device.stream(stream)
    return behind
