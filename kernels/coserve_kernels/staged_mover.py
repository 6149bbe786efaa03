"""KV between device slots and pinned host pages, through staging buffers on the device.

    store   compute stream:  gather slots -> staging |            | next forward pass
            copy stream:                             | staging -> host pages (one copy per run)
    load    copy stream:     host pages -> staging |
            compute stream:  forward pass          | scatter staging -> slots | next pass

Gather and scatter run on the stream of the forward passes, so slots may be freed or given away as
soon as ``store`` or ``load`` has returned: whatever uses them next runs later on that stream. All
copies run on one other stream, so host pages may be released and filled again at once as well.
The host never waits. A transfer larger than the staging buffers makes the compute stream wait for
the link, which is why plans bound what one step may move.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any, Protocol

import torch

from coserve_kernels.gather_pages import gather_pages
from coserve_kernels.page_shape import NUM_STAGING, STAGING_BYTES, PageShape
from coserve_kernels.scatter_pages import scatter_pages

ALIGNMENT_BYTES = 16


class Streams(Protocol):
    """The two streams and the order between them."""

    def compute(self, *inputs: torch.Tensor) -> AbstractContextManager[Any]:
        """Run on the forward passes' stream, after ``inputs`` were made by the caller."""
        ...

    def copy(self) -> AbstractContextManager[Any]:
        """Run on the copy stream."""
        ...

    def mark(self) -> Any:
        """A point on the stream in use."""
        ...

    def after(self, mark: Any) -> None:
        """The stream in use goes on after the point."""
        ...

    def wait(self) -> None:
        """The host waits for all copies."""
        ...


class CudaStreams:
    """Streams of one CUDA device."""

    def __init__(self, compute: Any, others: Sequence[Any] = ()) -> None:
        """Gather and scatter on ``compute``; None takes the stream that is current at each call.

        The copy stream is none of ``others``, nor ``compute``.
        """
        self._compute = compute
        self._copy = another_stream([compute, *others], torch.cuda.Stream)

    def compute(self, *inputs: torch.Tensor) -> AbstractContextManager[Any]:
        caller = torch.cuda.current_stream()
        if self._compute is None or caller == self._compute:
            return nullcontext()
        self._compute.wait_stream(caller)
        for tensor in inputs:  # the allocator may not reuse them before they are read
            tensor.record_stream(self._compute)
        return torch.cuda.stream(self._compute)

    def copy(self) -> AbstractContextManager[Any]:
        return torch.cuda.stream(self._copy)

    def mark(self) -> Any:
        event = torch.cuda.Event()
        event.record()
        return event

    def after(self, mark: Any) -> None:
        if mark is not None:
            torch.cuda.current_stream().wait_event(mark)

    def wait(self) -> None:
        self._copy.synchronize()
        (self._compute or torch.cuda.current_stream()).synchronize()


MOST_DRAWS = 64


def another_stream(taken: Sequence[Any], draw: Callable[[], Any]) -> Any:
    """A stream that is none of these: torch gives out some 32 in turn, and begins again.

    Copies on the stream of the passes would be right, and would stand in line with them.
    """
    handles = {stream.cuda_stream for stream in taken if stream is not None}
    drawn = draw()
    for _ in range(MOST_DRAWS):
        if drawn.cuda_stream not in handles:
            break
        drawn = draw()
    return drawn


class InOrder:
    """No streams: everything happens at once, in the order of the calls."""

    def compute(self, *inputs: torch.Tensor) -> AbstractContextManager[Any]:
        return nullcontext()

    def copy(self) -> AbstractContextManager[Any]:
        return nullcontext()

    def mark(self) -> Any:
        return None

    def after(self, mark: Any) -> None:
        """Each copy was done when it was asked for."""

    def wait(self) -> None:
        """Each copy was done when it was asked for."""


class StagedMover:
    """Moves pages with the Triton kernels; the interface is that of ``launch.PageMover``."""

    def __init__(
        self,
        keys: list[torch.Tensor],
        values: list[torch.Tensor],
        pages: torch.Tensor,
        streams: Streams,
        staging_bytes: int = STAGING_BYTES,
    ) -> None:
        """Allocate the staging buffers.

        Args:
            keys: Per layer, [slots, heads, head dim], contiguous.
            values: Likewise.
            pages: Host pages, [pages, 2, layers, page tokens, heads, head dim].
            streams: Where the parts run.
            staging_bytes: Size of one of the buffers, at least one page.
        """
        for plane in (*keys, *values):
            if not plane.is_contiguous() or plane.data_ptr() % ALIGNMENT_BYTES:
                raise ValueError("page kernels need contiguous, aligned KV buffers")
        device = keys[0].device
        self._shape = shape = PageShape.of(pages)
        self._streams = streams
        self._kept = (keys, values)  # the addresses below stay valid
        addresses = [plane.data_ptr() for plane in (*keys, *values)]
        self._planes = torch.tensor(addresses, dtype=torch.int64, device=device)
        by_page = pages.view(-1, math.prod(pages.shape[1:]))
        self._pages = by_page.view(shape.lane_type)
        self.window_pages = max(1, min(staging_bytes // shape.page_bytes, pages.shape[0]))
        self._staging = [
            torch.empty((self.window_pages, shape.page_lanes), dtype=shape.lane_type, device=device)
            for _ in range(NUM_STAGING)
        ]
        self._free_after: list[Any] = [None] * NUM_STAGING
        self._turn = 0

    def store(self, slots: torch.Tensor, page_ids: list[int]) -> None:
        """Copy ``slots`` to the host pages ``page_ids``; only the last may be partly filled."""
        shape, streams = self._shape, self._streams
        for first in range(0, len(page_ids), self.window_pages):
            ids = page_ids[first : first + self.window_pages]
            begin = first * shape.page_tokens
            part = slots[begin : begin + len(ids) * shape.page_tokens]
            staging, turn = self._next_staging()
            with streams.compute(part):
                streams.after(self._free_after[turn])
                gather_pages(self._planes, part, staging, shape)
                gathered = streams.mark()
            with streams.copy():
                streams.after(gathered)
                for offset, page, count in runs(ids):
                    self._pages[page : page + count].copy_(
                        staging[offset : offset + count], non_blocking=True
                    )
                self._free_after[turn] = streams.mark()

    def load(self, slots: torch.Tensor, page_ids: list[int], first_token: int = 0) -> None:
        """Copy the host pages ``page_ids``, from ``first_token`` of the first on, to ``slots``."""
        shape, streams = self._shape, self._streams
        done = 0
        for first in range(0, len(page_ids), self.window_pages):
            ids = page_ids[first : first + self.window_pages]
            skip = first_token if first == 0 else 0
            part = slots[done : done + len(ids) * shape.page_tokens - skip]
            done += part.shape[0]
            staging, turn = self._next_staging()
            with streams.copy():
                streams.after(self._free_after[turn])
                for offset, page, count in runs(ids):
                    staging[offset : offset + count].copy_(
                        self._pages[page : page + count], non_blocking=True
                    )
                fetched = streams.mark()
            with streams.compute(part):
                streams.after(fetched)
                scatter_pages(self._planes, part, staging, shape, skip)
                self._free_after[turn] = streams.mark()

    def warm(self, slot: int = 0) -> None:
        """Compile both kernels now, by a page of one slot that nobody uses: there and back."""
        if self._pages.shape[0]:
            slots = self._planes.new_full((self._shape.page_tokens,), slot)
            self.store(slots, [0])
            self.load(slots, [0])
            self.wait()

    def wait(self) -> None:
        """Wait until the host may read the pages."""
        self._streams.wait()

    def _next_staging(self) -> tuple[torch.Tensor, int]:
        self._turn = (self._turn + 1) % NUM_STAGING
        return self._staging[self._turn], self._turn


def runs(page_ids: list[int]) -> list[tuple[int, int, int]]:
    """Neighbouring pages as one copy: (offset in the list, first page, number of pages)."""
    found: list[tuple[int, int, int]] = []
    for offset, page in enumerate(page_ids):
        if found and found[-1][1] + found[-1][2] == page:
            start, first, count = found[-1]
            found[-1] = (start, first, count + 1)
        else:
            found.append((offset, page, 1))
    return found
