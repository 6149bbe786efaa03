"""Triton: scattered KV slots of all layers into contiguous pages.

One program copies one page of one plane (the keys, or the values, of one layer)::

    grid          (pages, planes)      planes = 2 * layers: keys of all layers, then values
    planes        int64 [planes]       address of each plane's first slot
    slots         int64 [tokens]       slot of every token
    staging       [pages, planes, page tokens, row lanes]   lanes of 1, 2, 4 or 8 bytes

KV is copied as opaque lanes, so every dtype comes out bit for bit, NaNs included.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl

from coserve_kernels.page_shape import PageShape


# Not compiled anew for a number of tokens that happens to be 1 or a multiple of 16, nor for slots
# that begin anywhere in SGLang's list of free ones.
@triton.jit(do_not_specialize=["num_tokens"], do_not_specialize_on_alignment=["slots"])
def _gather(  # type: ignore[no-untyped-def]  # Triton would read type hints as code  # noqa: PLR0913
    planes,
    slots,
    staging,
    num_tokens,
    row_lanes: tl.constexpr,
    page_tokens: tl.constexpr,
    tile_tokens: tl.constexpr,
    tile_lanes: tl.constexpr,
):
    page = tl.program_id(0).to(tl.int64)
    plane = tl.program_id(1)
    source = tl.load(planes + plane).to(tl.pointer_type(staging.dtype.element_ty))
    in_page = tl.arange(0, tile_tokens)
    token = page * page_tokens + in_page
    token_there = (in_page < page_tokens) & (token < num_tokens)
    slot = tl.load(slots + token, mask=token_there, other=0)
    target = staging + ((page * tl.num_programs(1) + plane) * page_tokens + in_page) * row_lanes
    for first in range(0, row_lanes, tile_lanes):
        lane = first + tl.arange(0, tile_lanes)
        there = token_there[:, None] & (lane < row_lanes)[None, :]
        content = tl.load(source + slot[:, None] * row_lanes + lane[None, :], mask=there)
        tl.store(target[:, None] + lane[None, :], content, mask=there)


def gather_pages(
    planes: torch.Tensor, slots: torch.Tensor, staging: torch.Tensor, shape: PageShape
) -> None:
    """Copy ``slots`` into ``staging``; the unused end of the last page is left alone.

    Args:
        planes: Addresses, int64 [planes].
        slots: Slots of consecutive tokens, int64 [tokens].
        staging: Lanes of ``ceil(tokens / page tokens)`` pages or more, on the same device.
        shape: How a page is laid out.
    """
    num_pages = -(-slots.shape[0] // shape.page_tokens)
    if num_pages:
        _gather[(num_pages, shape.num_planes)](
            planes,
            slots,
            staging,
            slots.shape[0],
            row_lanes=shape.row_lanes,
            page_tokens=shape.page_tokens,
            tile_tokens=triton.next_power_of_2(shape.page_tokens),
            tile_lanes=shape.tile_lanes,
        )
