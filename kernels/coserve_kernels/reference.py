"""Torch oracles of the page kernels: slow and obviously right; every mover is held to them.

Shapes used throughout::

    keys, values   per layer [slots, heads, head dim]          scattered: a token per slot
    pages          [host pages, 2, layers, 16, heads, head dim] contiguous: keys, then values
    slots          int64 [tokens]                      consecutive tokens of one or more rows
"""

from __future__ import annotations

import torch


def gather_pages_reference(
    keys: list[torch.Tensor],
    values: list[torch.Tensor],
    slots: torch.Tensor,
    pages: torch.Tensor,
    page_ids: list[int],
) -> None:
    """Copy ``slots`` into pages: ``pages[ids[t // 16], kv, l, t % 16] = kv_l[slots[t]]``.

    Only the last page may be partly filled.
    """
    page_tokens = pages.shape[3]
    num_full = slots.shape[0] // page_tokens
    ids = torch.tensor(page_ids, dtype=torch.int64)
    full = slots[: num_full * page_tokens]
    tail = slots[num_full * page_tokens :]
    for kv, layers in enumerate((keys, values)):
        for layer, buffer in enumerate(layers):
            if num_full:
                block = buffer[full].unflatten(0, (num_full, page_tokens))
                pages[ids[:num_full], kv, layer] = block.to(pages.device)
            if tail.numel():
                pages[ids[num_full], kv, layer, : tail.shape[0]] = buffer[tail].to(pages.device)


def scatter_pages_reference(
    pages: torch.Tensor,
    page_ids: list[int],
    keys: list[torch.Tensor],
    values: list[torch.Tensor],
    slots: torch.Tensor,
    first_token: int = 0,
) -> None:
    """The way back: ``kv_l[slots[t]] = pages[ids[u // 16], kv, l, u % 16]``, ``u = t + first``."""
    ids = torch.tensor(page_ids, dtype=torch.int64)
    end = first_token + slots.shape[0]
    for kv, layers in enumerate((keys, values)):
        for layer, buffer in enumerate(layers):
            block = pages[ids, kv, layer].flatten(0, 1)[first_token:end]
            buffer[slots] = block.to(buffer.device)
