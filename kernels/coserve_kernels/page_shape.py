"""How a page of KV lies in memory, counted in lanes of an integer type."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch

LANE_TYPES = {8: torch.int64, 4: torch.int32, 2: torch.int16, 1: torch.int8}
MAX_TILE_LANES = 256
STAGING_BYTES = 64 << 20
"""Size of one staging buffer on the device."""
NUM_STAGING = 2


@dataclass(frozen=True, slots=True)
class PageShape:
    """One page: ``[planes, page tokens, row lanes]``.

    Attributes:
        num_planes: Keys and values of every layer.
        page_tokens: Tokens of a page.
        row_lanes: Lanes of one token in one plane.
        lane_type: The widest integer type that divides a row.
    """

    num_planes: int
    page_tokens: int
    row_lanes: int
    lane_type: torch.dtype

    @classmethod
    def of(cls, pages: torch.Tensor) -> PageShape:
        """Shape of ``pages`` ([pages, 2, layers, page tokens, heads, head dim])."""
        row_bytes = math.prod(pages.shape[4:]) * pages.element_size()
        lane_bytes = next(size for size in LANE_TYPES if row_bytes % size == 0)
        planes = pages.shape[1] * pages.shape[2]
        return cls(planes, pages.shape[3], row_bytes // lane_bytes, LANE_TYPES[lane_bytes])

    @property
    def page_lanes(self) -> int:
        return self.num_planes * self.page_tokens * self.row_lanes

    @property
    def page_bytes(self) -> int:
        return self.page_lanes * self.lane_type.itemsize

    @property
    def tile_lanes(self) -> int:
        """Lanes a program copies at a time: a power of two."""
        lanes = 1
        while lanes < min(self.row_lanes, MAX_TILE_LANES):
            lanes *= 2
        return lanes
