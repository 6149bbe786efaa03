"""Attention on a CPU that costs what the rows of a step need.

SGLang's `torch_native` backend computes a prompt chunk of `p` tokens behind `c` cached ones as
`p + c` queries and throws `c` of them away, so that a decode row that shares a step with a prompt
(`p = 1`) costs `(1 + c)^2`; and it gathers keys with advanced indexing, ten times as slow as
`index_select`. Steps that mix prompts and decode rows are what co-serving consists of, and no GPU
kernel has these costs. Here a chunk has `p` queries, a decode row is one wherever it runs, and
a step's index tensors and masks are made once and not in every layer.

Encoder layers, cross attention and sliding windows stay with SGLang's code.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch.nn.functional import scaled_dot_product_attention


@dataclass(frozen=True, slots=True)
class RowView:
    """Where one row's queries and keys are in this step.

    Attributes:
        start: First query of the row.
        end: One past its last query.
        slots: KV slots of its whole context, shape `[kv_len]`.
        mask: What is added to the scores, shape `[end - start, kv_len]`; None if nothing is.
        causal: The row starts at position 0, so that the kernel's own causal mask fits.
    """

    start: int
    end: int
    slots: torch.Tensor
    mask: torch.Tensor | None = None
    causal: bool = False


class StepViews:
    """The row views of the pass under way, made by its first layer.

    A pass may lose rows between two layers; its per-row tensors are then new objects, and so the
    views are made again.
    """

    def __init__(self) -> None:
        """No pass yet."""
        self._key: tuple[Any, ...] = ()
        self._views: list[RowView] = []

    def forget(self) -> None:
        """A new pass begins: tensors of the last one may have been changed in place."""
        self._key = ()

    def get(
        self,
        table: torch.Tensor,
        rows: torch.Tensor,
        kv_lens: torch.Tensor,
        query_lens: torch.Tensor | None,
        dtype: torch.dtype,
    ) -> list[RowView]:
        """The views of these rows.

        Args:
            table: KV slot by request slot and position, shape `[requests, positions]`.
            rows: Request slots, shape `[rows]`.
            kv_lens: Tokens in the context of each row, this step's included, shape `[rows]`.
            query_lens: Tokens each row computes, shape `[rows]`; None if one each.
            dtype: Of the queries.
        """
        key = (rows, kv_lens, query_lens)
        if len(self._key) != 3 or any(a is not b for a, b in zip(key, self._key, strict=True)):
            self._key = key
            lengths = [1] * len(rows) if query_lens is None else query_lens.tolist()
            self._views = _views(table, rows.tolist(), kv_lens.tolist(), lengths, dtype)
        return self._views


def _views(
    table: torch.Tensor, rows: list[int], kv_lens: list[int], lengths: list[int], dtype: torch.dtype
) -> list[RowView]:
    views: list[RowView] = []
    start = 0
    for row, kv_len, length in zip(rows, kv_lens, lengths, strict=True):
        end = start + length
        slots = table[row, :kv_len]
        if length == 1:
            views.append(RowView(start, end, slots))
        elif length == kv_len:
            views.append(RowView(start, end, slots, causal=True))
        else:
            views.append(RowView(start, end, slots, mask=_tail_mask(length, kv_len, dtype)))
        start = end
    return views


def _tail_mask(num_queries: int, kv_len: int, dtype: torch.dtype) -> torch.Tensor:
    """Query `i` sees keys up to `kv_len - num_queries + i`; shape `[num_queries, kv_len]`."""
    mask = torch.full((num_queries, kv_len), float("-inf"), dtype=dtype)
    return mask.triu_(kv_len - num_queries + 1)


def attend(
    query: torch.Tensor,
    output: torch.Tensor,
    k_cache: torch.Tensor,
    v_cache: torch.Tensor,
    views: list[RowView],
    scaling: float | None,
) -> None:
    """Attention of every row over its own context.

    Args:
        query: `[tokens, heads, head_dim]`.
        output: `[tokens, heads, value_dim]`, written.
        k_cache: `[slots, kv_heads, head_dim]`.
        v_cache: `[slots, kv_heads, value_dim]`.
        views: One per row, covering all tokens.
        scaling: Of the scores; None for `head_dim ** -0.5`.
    """
    num_heads, num_kv_heads = query.shape[1], k_cache.shape[1]
    group = num_heads // num_kv_heads
    for view in views:
        # [1, kv_heads, kv_len, dim]
        key = k_cache.index_select(0, view.slots).to(query.dtype).transpose(0, 1).unsqueeze(0)
        value = v_cache.index_select(0, view.slots).to(query.dtype).transpose(0, 1).unsqueeze(0)
        if view.end - view.start == 1:
            # The query heads of one key head stand where queries of one head would: keys are
            # read once and not once for each of them.
            found = scaled_dot_product_attention(
                query[view.start].view(1, num_kv_heads, group, -1), key, value, scale=scaling
            )
            output[view.start] = found.reshape(num_heads, -1)
        else:
            found = scaled_dot_product_attention(
                query[view.start : view.end].transpose(0, 1).unsqueeze(0),
                key,
                value,
                attn_mask=view.mask,
                is_causal=view.causal,
                scale=scaling,
                enable_gqa=group > 1,
            )
            output[view.start : view.end] = found.squeeze(0).transpose(0, 1)


def install(backend: Any) -> None:
    """Put these into SGLang's backend class `TorchNativeAttnBackend`."""
    init_forward_metadata = backend.init_forward_metadata
    extend = backend._run_sdpa_forward_extend
    decode = backend._run_sdpa_forward_decode

    def begin(self: Any, forward_batch: Any) -> None:
        init_forward_metadata(self, forward_batch)
        _views_of(self).forget()

    def run_extend(
        self: Any, query: Any, output: Any, k_cache: Any, v_cache: Any, table: Any, rows: Any,
        kv_lens: Any, prefix_lens: Any, query_lens: Any, encoder_lens: Any = None,
        scaling: Any = None, enable_gqa: bool = False, causal: bool = False,
        is_cross_attn: bool = False, sliding_window_size: int | None = None,
    ) -> Any:  # fmt: skip
        if encoder_lens is not None or is_cross_attn or not causal or _has(sliding_window_size):
            return extend(
                self, query, output, k_cache, v_cache, table, rows, kv_lens, prefix_lens,
                query_lens, encoder_lens, scaling, enable_gqa, causal, is_cross_attn,
                sliding_window_size,
            )  # fmt: skip
        views = _views_of(self).get(table, rows, kv_lens, query_lens, query.dtype)
        attend(query, output, k_cache, v_cache, views, scaling)
        return output

    def run_decode(
        self: Any, query: Any, output: Any, k_cache: Any, v_cache: Any, table: Any, rows: Any,
        kv_lens: Any, encoder_lens: Any = None, scaling: Any = None, enable_gqa: bool = False,
        causal: bool = False, is_cross_attn: bool = False,
        sliding_window_size: int | None = None,
    ) -> Any:  # fmt: skip
        if encoder_lens is not None or is_cross_attn or _has(sliding_window_size):
            return decode(
                self, query, output, k_cache, v_cache, table, rows, kv_lens, encoder_lens,
                scaling, enable_gqa, causal, is_cross_attn, sliding_window_size,
            )  # fmt: skip
        views = _views_of(self).get(table, rows, kv_lens, None, query.dtype)
        attend(query, output, k_cache, v_cache, views, scaling)
        return output

    backend.init_forward_metadata = begin
    backend._run_sdpa_forward_extend = run_extend
    backend._run_sdpa_forward_decode = run_decode


def _has(sliding_window_size: int | None) -> bool:
    return sliding_window_size is not None and sliding_window_size > -1


def _views_of(backend: Any) -> StepViews:
    views: StepViews | None = getattr(backend, "coserve_views", None)
    if views is None:
        views = backend.coserve_views = StepViews()
    return views
