"""The right way to move pages on a device: Triton kernels on CUDA, numpy on a CPU."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

import torch

from coserve_kernels.cpu_mover import CpuMover


class PageMover(Protocol):
    """Moves KV of all layers between scattered device slots and contiguous host pages."""

    def store(self, slots: torch.Tensor, page_ids: list[int]) -> None:
        """Copy ``slots`` (int64 [tokens]) to ``ceil(tokens / page tokens)`` host pages.

        Only the last page may be partly filled; what it holds behind the last token is undefined.
        Slots and pages may be reused at once.
        """
        ...

    def load(self, slots: torch.Tensor, page_ids: list[int], first_token: int = 0) -> None:
        """Copy host pages, from ``first_token`` of the first on, to ``slots``."""
        ...

    def wait(self) -> None:
        """Wait until the host may read the pages."""
        ...


def page_mover(
    sides: Sequence[list[torch.Tensor]],
    pages: torch.Tensor,
    compute_stream: Any = None,
    other_streams: Sequence[Any] = (),
) -> PageMover:
    """A mover for these buffers.

    Args:
        sides: Keys and values, or latent KV alone; of each, per layer, [slots, heads, head dim].
        pages: Host pages, [pages, sides, layers, page tokens, heads, head dim]; pinned on CUDA
            hosts.
        compute_stream: Stream of the forward passes on CUDA; the current one by default.
        other_streams: Streams of CUDA that copies must not be on.
    """
    keys, values = sides if len(sides) > 1 else (*sides, [])
    if keys[0].device.type != "cuda":
        return CpuMover(keys, values, pages)
    # Imported here: CPU engines have no Triton.
    from coserve_kernels.staged_mover import CudaStreams, StagedMover

    mover = StagedMover(keys, values, pages, CudaStreams(compute_stream, other_streams))
    mover.warm()
    return mover
