"""Cut rows out of a forward pass that is under way (ConServe v2, section 4.3)."""

from __future__ import annotations

from typing import Any

import torch

PER_ROW_TENSORS = (
    "req_pool_indices",
    "seq_lens",
    "seq_lens_cpu",
    "orig_seq_lens",
    "extend_seq_lens",
    "extend_prefix_lens",
)
PER_ROW_LISTS = (
    "extend_seq_lens_cpu",
    "extend_prefix_lens_cpu",
    "extend_logprob_start_lens_cpu",
    "lora_ids",
    "rids",
)
PER_TOKEN_TENSORS = ("input_ids", "out_cache_loc")
PENDING_REDUCE = "_sglang_needs_allreduce_fusion"
"""SGLang's mark on hidden states whose sum over the ranks is left to the next layer's norm."""


def cut_forward_batch(
    forward_batch: Any,
    positions: torch.Tensor,
    hidden: torch.Tensor,
    residual: torch.Tensor | None,
    keep: list[int],
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor | None]:
    """Keep only some rows of a batch between two layers.

    Args:
        forward_batch: Changed in place.
        positions: Position of every token, shape [tokens], or [3, tokens] with three axes (mrope).
        hidden: Hidden states, shape [tokens, hidden]; a sum over ranks may be pending on them.
        residual: Residual stream of the same shape, or None before the first layer.
        keep: Row indices that stay, ascending.

    Returns:
        Positions, hidden states and residual of the rows that stay.
    """
    device = hidden.device
    rows_cpu = torch.tensor(keep, dtype=torch.int64)
    rows = rows_cpu.to(device)
    tokens = _tokens_of(forward_batch, keep).to(device)

    for name in PER_ROW_TENSORS:
        value = getattr(forward_batch, name, None)
        if value is not None:
            setattr(forward_batch, name, value[rows if value.device == device else rows_cpu])
    for name in PER_ROW_LISTS:
        value = getattr(forward_batch, name, None)
        if value is not None:
            setattr(forward_batch, name, [value[i] for i in keep])
    for name in PER_TOKEN_TENSORS:
        setattr(forward_batch, name, getattr(forward_batch, name)[tokens])

    forward_batch.positions = positions[..., tokens]
    axes = getattr(forward_batch, "mrope_positions", None)
    if axes is not None:
        forward_batch.mrope_positions = axes[..., tokens]
    forward_batch.batch_size = len(keep)
    if forward_batch.seq_lens_cpu is not None:
        forward_batch.seq_lens_sum = int(forward_batch.seq_lens_cpu.sum())
    if forward_batch.extend_seq_lens is not None:
        lengths = forward_batch.extend_seq_lens
        forward_batch.extend_num_tokens = int(tokens.numel())
        forward_batch.extend_start_loc = torch.cumsum(lengths, 0, dtype=lengths.dtype) - lengths
    return (
        forward_batch.positions,
        _cut_hidden(hidden, tokens),
        residual[tokens] if residual is not None else None,
    )


def _cut_hidden(hidden: torch.Tensor, tokens: torch.Tensor) -> torch.Tensor:
    """Indexing makes a tensor without SGLang's mark: unmarked, the sum would never be taken."""
    kept = hidden[tokens]
    if getattr(hidden, PENDING_REDUCE, False):
        setattr(kept, PENDING_REDUCE, True)
    return kept


def _tokens_of(forward_batch: Any, keep: list[int]) -> torch.Tensor:
    """Token indices of these rows; a decode batch has one token per row."""
    lengths = forward_batch.extend_seq_lens_cpu
    if lengths is None:
        return torch.tensor(keep, dtype=torch.int64)
    starts = [0]
    for length in lengths:
        starts.append(starts[-1] + int(length))
    return torch.cat([torch.arange(starts[i], starts[i + 1]) for i in keep])
