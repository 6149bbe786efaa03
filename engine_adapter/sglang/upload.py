"""Numbers of the host on the device, without waiting for it.

``torch.tensor(numbers, device="cuda")`` copies from memory that the driver cannot read by itself:
the host then waits until the current stream is done with everything in front of the copy, which on
the scheduler's stream is the pass that runs. From page-locked memory the copy takes its turn on the
stream and the host goes on. The caching allocator of page-locked memory keeps the memory until the
copy is over.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch


def upload(
    numbers: Sequence[Any] | torch.Tensor, device: Any, dtype: torch.dtype = torch.int64
) -> torch.Tensor:
    """The numbers on the device, in the order of the current stream.

    Args:
        numbers: Python numbers, lists of them, or a tensor of the host, any shape.
        device: Where to.
        dtype: Of a tensor made of Python numbers; a tensor keeps its own.
    """
    is_cuda = torch.device(device).type == "cuda"
    if isinstance(numbers, torch.Tensor):
        held = numbers.pin_memory() if is_cuda else numbers
    else:
        held = torch.tensor(numbers, dtype=dtype, pin_memory=is_cuda)
    return held.to(device, non_blocking=True)
