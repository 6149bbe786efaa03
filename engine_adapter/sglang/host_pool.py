"""Host memory for KV checkpoints: fixed pages of 16 tokens, all layers of a token together.

A host page is one contiguous block ``[2, layers, page tokens, heads, head dim]`` (keys, then
values), so on CUDA a run of pages is one transfer. The pool is allocated once and never grows;
when it is full nothing more is checkpointed and a retract falls back to recomputation
(:mod:`engine_adapter.scheduling.host_ledger`).
"""

from __future__ import annotations

from typing import Any

import torch

from coserve_kernels.launch import page_mover
from engine_adapter.scheduling.host_ledger import HostLedger

HOST_PAGE_TOKENS = 16


class HostPool:
    """Pages for KV checkpoints.

    Attributes:
        ledger: Which page belongs to which request.
        page_bytes: Size of one page.
    """

    def __init__(self, kv_pool: Any, num_pages: int, compute_stream: Any = None) -> None:
        """Allocate ``num_pages`` pages shaped like the device pool's tokens.

        Args:
            kv_pool: SGLang's multi-head KV pool (``k_buffer`` and ``v_buffer`` per layer).
            num_pages: Capacity in pages.
            compute_stream: Stream of the forward passes on CUDA; None: the current one.

        Raises:
            ValueError: If the pool is not multi-head attention with equal key and value shapes.
        """
        self._keys = list(kv_pool.k_buffer)
        self._values = list(kv_pool.v_buffer)
        shape = self._keys[0].shape[1:]
        if len(shape) != 2 or self._values[0].shape[1:] != shape:
            raise ValueError(
                "KV checkpoints need a multi-head attention pool with equal key and value shapes; "
                "start this model with COSERVE_POLICY=off"
            )
        pinned = self._keys[0].device.type == "cuda"
        self._pages = torch.empty(
            (num_pages, 2, len(self._keys), HOST_PAGE_TOKENS, *shape),
            dtype=self._keys[0].dtype,
            pin_memory=pinned,
        )
        self.ledger = HostLedger(num_pages)
        self.page_bytes = self._pages[0].numel() * self._pages.element_size() if num_pages else 0
        self._mover = page_mover(self._keys, self._values, self._pages, compute_stream)

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
        """Content of the pages, shape [2, layers, num_tokens, heads, head dim]; for tests."""
        self._mover.wait()
        block = self._pages[torch.tensor(pages, dtype=torch.int64)]
        flat = block.permute(1, 2, 0, 3, 4, 5).flatten(2, 3)
        return flat[:, :, :num_tokens]

    def device_tokens(self, slots: torch.Tensor) -> torch.Tensor:
        """Device KV in the same shape as :meth:`tokens`; for tests."""
        return torch.stack(
            [
                torch.stack([layer[slots] for layer in self._keys]),
                torch.stack([layer[slots] for layer in self._values]),
            ]
        ).cpu()
