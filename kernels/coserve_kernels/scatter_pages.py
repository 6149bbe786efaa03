"""Contiguous host pages back into scattered KV slots."""

from __future__ import annotations

import torch

from coserve_kernels.reference import scatter_pages_reference


def scatter_pages(
    pages: torch.Tensor,
    page_ids: list[int],
    keys: list[torch.Tensor],
    values: list[torch.Tensor],
    slots: torch.Tensor,
    first_token: int = 0,
) -> None:
    """Copy ``pages[page_ids]`` to ``slots``; shapes as in the reference module."""
    scatter_pages_reference(pages, page_ids, keys, values, slots, first_token)
