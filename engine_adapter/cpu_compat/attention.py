"""Attention on a CPU: costs what the rows of a step need, and rounds alike in any step.

SGLang's `torch_native` backend computes a prompt chunk of `p` tokens behind `c` cached ones as
`p + c` queries and throws `c` of them away, so that a decoding request that shares a step with a
prompt (`p = 1`) costs `(1 + c)^2`; and it gathers keys with advanced indexing, ten times as slow as
`index_select`. Steps that mix prompts and decoding requests are what co-serving consists of, and no
GPU kernel has these costs. Here a chunk has `p` queries, a decoding request is a chunk of one
token, and a step's index tensors are made once and not in every layer.

The order in which the kernel adds up follows from how many keys it is given, and from how many
queries if they are few. Here a token is given the keys up to the end of its block of `BLOCK`
tokens, those behind it masked, and never one of the fewest queries: its result is the same to the
last bit in any chunk, as a piece of a prompt and as a generated token.

    tokens      | block 0 | block 1 | block 2 |
    a chunk          [5 of 0| all of 1 |3 of 2]     one call for each block, over the keys up to
    keys         -------->|                         the block's end
                 ------------------>|
                 ---------------------------->|

Encoder layers, cross attention and sliding windows stay with SGLang's code.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import Any

import torch
from torch.nn.functional import pad, scaled_dot_product_attention

# Whole prompts and short chunks are fastest with blocks of 32 to 64 tokens.
BLOCK = 32
# The kernel computes its queries by 32 (or multiples of it), and rounds otherwise where three or
# fewer are left over.
TILE = 32
FEWEST = 4


@dataclass(frozen=True, slots=True)
class RowView:
    """Where one row's queries and keys are in this step.

    Attributes:
        start: First query of the row.
        end: One past its last query.
        kv_len: Tokens in its context.
        slots: Their KV slots; behind them, up to the end of the last block, the first one's. Those
            keys are masked, and finite as the row's own are: shape `[kv_len in whole blocks]`.
    """

    start: int
    end: int
    kv_len: int
    slots: torch.Tensor


class StepViews:
    """The row views of the pass under way, made by its first layer.

    A pass may lose rows between two layers; its per-row tensors are then new objects, and so the
    views are made again.
    """

    def __init__(self) -> None:
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
    ) -> list[RowView]:
        """The views of these rows.

        Args:
            table: KV slot by request slot and position, shape `[requests, positions]`.
            rows: Request slots, shape `[rows]`.
            kv_lens: Tokens in the context of each row, this step's included, shape `[rows]`.
            query_lens: Tokens each row computes, shape `[rows]`; None if all decode.
        """
        key = (rows, kv_lens, query_lens)
        if len(self._key) != 3 or any(a is not b for a, b in zip(key, self._key, strict=True)):
            self._key = key
            lengths = None if query_lens is None else query_lens.tolist()
            self._views = _views(table, rows.tolist(), kv_lens.tolist(), lengths)
        return self._views


def _views(
    table: torch.Tensor, rows: list[int], kv_lens: list[int], lengths: list[int] | None
) -> list[RowView]:
    views: list[RowView] = []
    start = 0
    for row, kv_len, length in zip(rows, kv_lens, lengths or [1] * len(rows), strict=True):
        slots = table[row, :kv_len]
        if over := kv_len % BLOCK:
            slots = torch.cat([slots, slots[:1].expand(BLOCK - over)])
        views.append(RowView(start, start + length, kv_len, slots))
        start += length
    return views


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
    for view in views:
        # [1, kv_heads, keys, dim]
        key = k_cache.index_select(0, view.slots).to(query.dtype).transpose(0, 1).unsqueeze(0)
        value = v_cache.index_select(0, view.slots).to(query.dtype).transpose(0, 1).unsqueeze(0)
        queries = query[view.start : view.end]
        output[view.start : view.end] = _chunk(queries, key, value, view.kv_len, scaling)


def _chunk(
    query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, kv_len: int, scaling: float | None
) -> torch.Tensor:
    """A chunk that ends at `kv_len`, block by block; shape `[tokens, heads, value_dim]`."""
    num_tokens, num_heads, dim = query.shape
    kv_heads = key.shape[1]
    group = num_heads // kv_heads
    # The query heads of one key head stand where queries of one head would: keys are read once
    # and not once for each of them. [1, kv_heads, tokens * group, dim]
    rows = query.view(num_tokens, kv_heads, group, dim).transpose(0, 1)
    rows = rows.reshape(1, kv_heads, num_tokens * group, dim)
    mask = _mask(group, 1 << (key.shape[2] - 1).bit_length(), query.dtype)
    found: list[torch.Tensor] = []
    start = at = kv_len - num_tokens
    while at < kv_len:
        end = at // BLOCK * BLOCK + BLOCK
        until = min(end, kv_len)
        block = rows[:, :, (at - start) * group : (until - start) * group]
        num_rows = block.shape[2]
        missing = FEWEST - num_rows % TILE
        if 0 < missing < FEWEST:
            block = pad(block, (0, 0, 0, missing))
        first = at % BLOCK * group
        result = scaled_dot_product_attention(
            block,
            key[:, :, :end],
            value[:, :, :end],
            attn_mask=mask[first : first + block.shape[2], mask.shape[1] - end :],
            scale=scaling,
        )
        found.append(result[:, :, :num_rows])
        at = until
    whole = found[0] if len(found) == 1 else torch.cat(found, 2)
    whole = whole.view(kv_heads, num_tokens, group, -1).transpose(0, 1)
    return whole.reshape(num_tokens, num_heads, -1)


@cache
def _mask(group: int, width: int, dtype: torch.dtype) -> torch.Tensor:
    """What is added to a block's scores over the keys up to its end, right-aligned.

    Token `i` of a block sees all keys but the last `BLOCK - 1 - i`, its `group` rows alike; behind
    them are rows for queries that fill up: shape `[group * BLOCK + FEWEST, width]`.
    """
    mask = torch.zeros(BLOCK, width, dtype=dtype)
    mask[:, width - BLOCK :] = torch.full((BLOCK, BLOCK), float("-inf"), dtype=dtype).triu_(1)
    return pad(mask.repeat_interleave(group, 0), (0, 0, 0, FEWEST))


def install(backend: Any) -> None:
    """Put these into SGLang's class `TorchNativeAttnBackend`."""
    init_forward_metadata = backend.init_forward_metadata
    extend = backend._run_sdpa_forward_extend
    decode = backend._run_sdpa_forward_decode

    def begin(self: Any, forward_batch: Any) -> None:
        init_forward_metadata(self, forward_batch)
        _views_of(self).forget()

    def run_extend(  # noqa: PLR0913
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
        views = _views_of(self).get(table, rows, kv_lens, query_lens)
        attend(query, output, k_cache, v_cache, views, scaling)
        return output

    def run_decode(  # noqa: PLR0913
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
        views = _views_of(self).get(table, rows, kv_lens, None)
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
