"""KV between the slots and the host pages of a CPU engine: one take and one write per plane.

A token is moved as integer lanes, so every element type goes the same way (torch's own indexed
copies know no float8 on a CPU), and through numpy, whose ``take`` of whole rows costs a quarter of
torch's advanced indexing. One plane of a transfer lies between the two in a buffer that is small
enough to stay in the cache.
"""

from __future__ import annotations

import math

import numpy as np
import torch

from coserve_kernels.page_shape import PageShape


class CpuMover:
    """Moves pages on the calling thread; the interface is that of ``launch.PageMover``."""

    def __init__(
        self, keys: list[torch.Tensor], values: list[torch.Tensor], pages: torch.Tensor
    ) -> None:
        """Look at the buffers as lanes; shapes as in the reference module, all contiguous."""
        shape = PageShape.of(pages)
        self._page_tokens, self._row_lanes = shape.page_tokens, shape.row_lanes
        num_elements = math.prod(pages.shape[4:])
        self._planes = [
            plane.view(-1, num_elements).view(shape.lane_type).numpy() for plane in (*keys, *values)
        ]
        by_token = pages.view(-1, shape.num_planes, shape.page_tokens, num_elements)
        self._pages = by_token.view(shape.lane_type).numpy()

    def store(self, slots: torch.Tensor, page_ids: list[int]) -> None:
        tokens = self._page_tokens
        num_full = slots.shape[0] // tokens
        full, tail = slots[: num_full * tokens].numpy(), slots[num_full * tokens :].numpy()
        ids = np.array(page_ids[:num_full], dtype=np.int64)
        between = np.empty((full.shape[0], self._row_lanes), self._pages.dtype)
        pages_between = between.reshape(num_full, tokens, self._row_lanes)
        for number, plane in enumerate(self._planes):
            if num_full:
                # "clip" checks nothing and writes straight to `out`; slots come from the pool.
                plane.take(full, axis=0, out=between, mode="clip")
                self._pages[ids, number] = pages_between
            if tail.size:
                self._pages[page_ids[num_full], number, : tail.size] = plane[tail]

    def load(self, slots: torch.Tensor, page_ids: list[int], first_token: int = 0) -> None:
        ids = np.array(page_ids, dtype=np.int64)
        targets = slots.numpy()
        end = first_token + targets.size
        for number, plane in enumerate(self._planes):
            rows = self._pages[ids, number].reshape(-1, self._row_lanes)
            plane[targets] = rows[first_token:end]

    def wait(self) -> None:
        """Nothing is under way."""
