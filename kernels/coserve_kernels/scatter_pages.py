"""Triton: contiguous pages back into scattered KV slots of all layers.

Layout and names as in ``gather_pages``. The first token may lie inside the first page.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl

from coserve_kernels.page_shape import PageShape


# Not compiled anew for a number of tokens that happens to be 1 or a multiple of 16, nor for slots
# that begin anywhere in SGLang's list of free ones.
@triton.jit(
    do_not_specialize=["num_tokens", "first_token"], do_not_specialize_on_alignment=["slots"]
)
def _scatter(  # type: ignore[no-untyped-def]  # Triton would read type hints as code  # noqa: PLR0913
    planes,
    slots,
    staging,
    num_tokens,
    first_token,
    row_lanes: tl.constexpr,
    page_tokens: tl.constexpr,
    tile_tokens: tl.constexpr,
    tile_lanes: tl.constexpr,
):
    page = tl.program_id(0).to(tl.int64)
    plane = tl.program_id(1)
    target = tl.load(planes + plane).to(tl.pointer_type(staging.dtype.element_ty))
    in_page = tl.arange(0, tile_tokens)
    token = page * page_tokens + in_page - first_token
    token_there = (in_page < page_tokens) & (token >= 0) & (token < num_tokens)
    slot = tl.load(slots + token, mask=token_there, other=0)
    source = staging + ((page * tl.num_programs(1) + plane) * page_tokens + in_page) * row_lanes
    for first in range(0, row_lanes, tile_lanes):
        lane = first + tl.arange(0, tile_lanes)
        there = token_there[:, None] & (lane < row_lanes)[None, :]
        content = tl.load(source[:, None] + lane[None, :], mask=there)
        tl.store(target + slot[:, None] * row_lanes + lane[None, :], content, mask=there)


def scatter_pages(
    planes: torch.Tensor,
    slots: torch.Tensor,
    staging: torch.Tensor,
    shape: PageShape,
    first_token: int = 0,
) -> None:
    """Copy pages in ``staging`` to ``slots``.

    Args:
        planes: Addresses, int64 [planes].
        slots: Slots of consecutive tokens, int64 [tokens], no slot twice.
        staging: Lanes of the pages the tokens lie in, on the same device.
        shape: How a page is laid out.
        first_token: Offset of the first token inside the first page.
    """
    num_pages = -(-(first_token + slots.shape[0]) // shape.page_tokens) if slots.shape[0] else 0
    if num_pages:
        _scatter[(num_pages, shape.num_planes)](
            planes,
            slots,
            staging,
            slots.shape[0],
            first_token,
            row_lanes=shape.row_lanes,
            page_tokens=shape.page_tokens,
            tile_tokens=triton.next_power_of_2(shape.page_tokens),
            tile_lanes=shape.tile_lanes,
        )
