"""Attention on a CPU: costs what the rows of a step need, and rounds alike in any step.

SGLang's `torch_native` backend computes a prompt chunk of `p` tokens behind `c` cached ones as
`p + c` queries and throws `c` of them away, so that a decode row that shares a step with a prompt
(`p = 1`) costs `(1 + c)^2`; and it gathers keys with advanced indexing, ten times as slow as
`index_select`. Steps that mix prompts and decode rows are what co-serving consists of, and no GPU
kernel has these costs. Here a chunk has `p` queries, a decode row is one wherever it runs, and
a step's index tensors are made once and not in every layer.

The order in which a kernel adds up follows from its shapes, and so where a prompt is cut would
change its KV in the last bits. Here a prompt's queries are computed in blocks that begin at
multiples of `BLOCK` tokens of the prompt, each over the keys up to its end: what a chunk has not of
its first and its last block is computed with it and thrown away. A token's result is the same to
the last bit in any chunk (decision 0093).

Encoder layers, cross attention and sliding windows stay with SGLang's code.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any

import torch
from torch.nn.functional import scaled_dot_product_attention

# Whole prompts are as fast in blocks of 8 to 64. Larger ones make short chunks dear (1.4 times a
# chunk of 20 tokens behind 1,000 with 16, 2.4 times with 64); smaller ones round more coarsely in
# bfloat16, where the kernel takes another way for few queries.
BLOCK = 16


@dataclass(frozen=True, slots=True)
class RowView:
    """Where one row's queries and keys are in this step.

    Attributes:
        start: First query of the row.
        end: One past its last query.
        slots: KV slots of its whole context, shape `[kv_len]`.
        decodes: The query is a generated token's, and not a piece of a prompt.
    """

    start: int
    end: int
    slots: torch.Tensor
    decodes: bool


class StepViews:
    """The row views of the pass under way, made by its first layer.

    A pass may lose rows between two layers; its per-row tensors are then new objects, and so the
    views are made again.
    """

    def __init__(self) -> None:
        """No pass yet."""
        self._key: tuple[Any, ...] = ()
        self._views: list[RowView] = []
        self._prompt_lens: Mapping[int, int] = {}

    def expect(self, prompt_lens: Mapping[int, int]) -> None:
        """The next pass is of these rows: length of each one's prompt by its request slot."""
        self._prompt_lens = prompt_lens

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
            self._views = self._made(table, rows.tolist(), kv_lens.tolist(), lengths)
        return self._views

    def _made(
        self, table: torch.Tensor, rows: list[int], kv_lens: list[int], lengths: list[int] | None
    ) -> list[RowView]:
        views: list[RowView] = []
        start = 0
        for row, kv_len, length in zip(rows, kv_lens, lengths or [1] * len(rows), strict=True):
            end = start + length
            # A single token may also be the rest of a prompt, and is then computed as one.
            decodes = length == 1 and (
                lengths is None or kv_len > self._prompt_lens.get(row, kv_len - 1)
            )
            views.append(RowView(start, end, table[row, :kv_len], decodes))
            start = end
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
        kv_len = view.slots.shape[0]
        padded = kv_len if view.decodes else -(-kv_len // BLOCK) * BLOCK
        key = _context(k_cache, view.slots, padded, query.dtype)
        value = _context(v_cache, view.slots, padded, query.dtype)
        if view.decodes:
            kv_heads = key.shape[1]
            # The query heads of one key head stand where queries of one head would: keys are
            # read once and not once for each of them.
            grouped = query[view.start].view(1, kv_heads, query.shape[1] // kv_heads, -1)
            found = scaled_dot_product_attention(grouped, key, value, scale=scaling)
            output[view.start] = found.reshape(query.shape[1], -1)
        else:
            output[view.start : view.end] = _chunk(
                query[view.start : view.end], key, value, kv_len, scaling
            )


def _chunk(
    query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, kv_len: int, scaling: float | None
) -> torch.Tensor:
    """A chunk that ends at `kv_len`, in blocks; shape `[tokens, heads, value_dim]`."""
    num_tokens, num_heads, dim = query.shape
    kv_heads, padded = key.shape[1], key.shape[2]
    group = num_heads // kv_heads
    before = kv_len - num_tokens
    first = before // BLOCK * BLOCK
    whole = query.new_zeros(padded - first, num_heads, dim)
    whole[before - first : kv_len - first] = query
    # The query heads of one key head follow each other: [blocks, 1, kv_heads, group * BLOCK, dim]
    blocks = (
        whole.view(-1, BLOCK, kv_heads, group, dim)
        .permute(0, 2, 3, 1, 4)
        .reshape(-1, 1, kv_heads, group * BLOCK, dim)
    )
    mask = _mask(group, 1 << (padded - 1).bit_length(), query.dtype)
    found = [
        scaled_dot_product_attention(
            block,
            key[:, :, :end],
            value[:, :, :end],
            attn_mask=mask[:, mask.shape[1] - end :],
            scale=scaling,
        )
        for block, end in zip(blocks, range(first + BLOCK, padded + 1, BLOCK), strict=True)
    ]
    # [tokens of the blocks, heads, value_dim]
    out = torch.cat(found).view(-1, kv_heads, group, BLOCK, value.shape[3])
    out = out.permute(0, 3, 1, 2, 4).reshape(padded - first, num_heads, -1)
    return out[before - first : kv_len - first]


def _context(
    cache: torch.Tensor, slots: torch.Tensor, padded: int, dtype: torch.dtype
) -> torch.Tensor:
    """Keys or values of a row, zeros behind them: shape `[1, kv_heads, padded, dim]`."""
    found = cache.new_empty(padded, *cache.shape[1:])
    torch.index_select(cache, 0, slots, out=found[: slots.shape[0]])
    found[slots.shape[0] :] = 0
    return found.to(dtype).transpose(0, 1).unsqueeze(0)


@cache
def _mask(group: int, width: int, dtype: torch.dtype) -> torch.Tensor:
    """What is added to a block's scores over the keys up to its end, right-aligned.

    Query `i` sees all keys but the last `BLOCK - 1 - i`: shape `[group * BLOCK, width]`.
    """
    mask = torch.zeros(BLOCK, width, dtype=dtype)
    mask[:, width - BLOCK :] = torch.full((BLOCK, BLOCK), float("-inf"), dtype=dtype).triu_(1)
    return mask.repeat(group, 1)


def install(backend: Any, forward_batch_class: Any) -> None:
    """Put these into SGLang's classes `TorchNativeAttnBackend` and `ForwardBatch`."""
    init_new = forward_batch_class.init_new.__func__
    init_forward_metadata = backend.init_forward_metadata
    extend = backend._run_sdpa_forward_extend
    decode = backend._run_sdpa_forward_decode

    def make(cls: Any, /, batch: Any, model_runner: Any, **named: Any) -> Any:
        # What a pass is made of is copied field by field before it runs: nothing can be added.
        _views_of(model_runner.attn_backend).expect(
            {req.req_pool_idx: len(req.origin_input_ids) for req in batch.reqs}
        )
        return init_new(cls, batch, model_runner, **named)

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
        views = _views_of(self).get(table, rows, kv_lens, query_lens)
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
        views = _views_of(self).get(table, rows, kv_lens, None)
        attend(query, output, k_cache, v_cache, views, scaling)
        return output

    forward_batch_class.init_new = classmethod(make)
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
