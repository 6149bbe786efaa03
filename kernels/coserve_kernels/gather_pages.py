"""Scattered KV slots into contiguous host pages."""

from __future__ import annotations

import torch

from coserve_kernels.reference import gather_pages_reference


def gather_pages(
    keys: list[torch.Tensor],
    values: list[torch.Tensor],
    slots: torch.Tensor,
    pages: torch.Tensor,
    page_ids: list[int],
) -> None:
    """Copy the KV of ``slots`` into ``pages[page_ids]``; shapes as in the reference module."""
    gather_pages_reference(keys, values, slots, pages, page_ids)
