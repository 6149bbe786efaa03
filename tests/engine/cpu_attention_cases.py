"""The CPU attention against SGLang's own, row by row. Runs in the engine's venv."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

import torch  # noqa: E402
from sglang.srt.layers.attention.torch_native_backend import TorchNativeAttnBackend  # noqa: E402

from engine_adapter.cpu_compat import attention  # noqa: E402

SLOTS, POSITIONS, DIM = 400, 64, 16
# (context before, tokens computed): a decode row, a first chunk, a later chunk, one token each way.
ROWS = [(20, 1), (0, 7), (13, 5), (0, 1), (33, 30)]


class Stock(TorchNativeAttnBackend):  # type: ignore[misc]
    """SGLang's code without a model runner."""

    def __init__(self) -> None:
        self.use_sliding_window_kv_pool = False
        self.swa_out_cache_loc = None


class Ours(Stock):
    """The same class with our functions in place."""


attention.install(Ours)


def arguments(heads: int, kv_heads: int, dtype: torch.dtype, rows: list[tuple[int, int]]) -> Any:
    """Tensors of one step over these rows, as the backend's layers get them."""
    torch.manual_seed(heads * 100 + kv_heads + len(rows))
    num_tokens = sum(p for _, p in rows)
    table = torch.randperm(SLOTS - 1)[: POSITIONS * 6].view(6, POSITIONS).int() + 1
    return SimpleNamespace(
        query=torch.randn(num_tokens, heads, DIM).to(dtype),
        k=torch.randn(SLOTS, kv_heads, DIM).to(dtype),
        v=torch.randn(SLOTS, kv_heads, DIM).to(dtype),
        table=table,
        rows=torch.randperm(6)[: len(rows)],
        kv_lens=torch.tensor([c + p for c, p in rows]),
        prefix=torch.tensor([c for c, _ in rows]),
        lengths=torch.tensor([p for _, p in rows]),
    )


def extend(backend: Any, a: Any, gqa: bool, **more: Any) -> torch.Tensor:
    out = torch.zeros_like(a.query)
    backend.init_forward_metadata(SimpleNamespace(out_cache_loc=None))
    more = {"causal": True, **more}
    for _ in range(2):  # the second layer of a pass uses the views of the first
        backend._run_sdpa_forward_extend(
            a.query, out, a.k, a.v, a.table, a.rows, a.kv_lens, a.prefix, a.lengths,
            None, scaling=0.3, enable_gqa=gqa, **more,
        )  # fmt: skip
    return out


def decode(backend: Any, a: Any, gqa: bool, **more: Any) -> torch.Tensor:
    out = torch.zeros_like(a.query)
    backend.init_forward_metadata(SimpleNamespace(out_cache_loc=None))
    backend._run_sdpa_forward_decode(
        a.query, out, a.k, a.v, a.table, a.rows, a.kv_lens, None,
        scaling=0.3, enable_gqa=gqa, **more,
    )  # fmt: skip
    return out


def different(heads: int, kv_heads: int, dtype: torch.dtype) -> int:
    """Tokens of a text whose bits depend on where it was cut, or on what ran along.

    A generated token is a piece of one token, in a step that only decodes or in one that does not.
    """
    length = 240
    a = arguments(heads, kv_heads, dtype, [(0, length), (0, 9)])
    table = torch.randperm(SLOTS - 1)[:length].view(1, -1).int() + 1
    table = torch.cat([table, table.flip(1)])  # the other row's keys do not matter
    results = []
    for pieces in ([length], [1, 63, 16, 1, 48, 70, 1, 40], [7] * 34 + [2], [1] * length):
        for along in (False, True):
            out = torch.zeros_like(a.query[:length])
            start = 0
            for n in pieces:
                mine = slice(start, start + n)
                query = torch.cat([a.query[mine], a.query[-9:]]) if along else a.query[mine]
                found = torch.zeros_like(query)
                rows = 2 if along else 1
                begun()._run_sdpa_forward_extend(
                    query, found, a.k, a.v, table, torch.arange(rows),
                    torch.tensor([start + n, 9][:rows]), torch.tensor([start, 0][:rows]),
                    torch.tensor([n, 9][:rows]), None, scaling=0.3, enable_gqa=True, causal=True,
                )  # fmt: skip
                out[mine] = found[:n]
                start += n
            results.append(out)
    out = torch.zeros_like(a.query[:length])
    for position in range(length):
        begun()._run_sdpa_forward_decode(
            a.query[position : position + 1], out[position : position + 1], a.k, a.v, table,
            torch.tensor([0]), torch.tensor([position + 1]), None, scaling=0.3, enable_gqa=True,
            causal=True,
        )  # fmt: skip
    results.append(out)
    assert float(results[0].abs().min(1).values.max()) > 0, "nothing was computed"
    return sum(int((out != results[0]).flatten(1).any(1).sum()) for out in results)


def begun() -> Ours:
    """The backend at the beginning of a pass."""
    ours = Ours()
    ours.init_forward_metadata(SimpleNamespace(out_cache_loc=None))
    return ours


def main() -> None:
    worst: dict[str, float] = {}
    for heads, kv_heads in ((4, 4), (6, 2), (9, 3)):
        for dtype in (torch.float32, torch.bfloat16):
            for more in ({}, {"sliding_window_size": 4}):
                label = f"{heads}/{kv_heads} {dtype} {more}"
                mixed = arguments(heads, kv_heads, dtype, ROWS)
                rows = [(c, 1) for c, _ in ROWS]
                one_each = arguments(heads, kv_heads, dtype, rows)
                gqa = heads != kv_heads
                for name, call, given in (("extend", extend, mixed), ("decode", decode, one_each)):
                    theirs = call(Stock(), given, gqa, **more).float()
                    ours = call(Ours(), given, gqa, **more).float()
                    worst[f"{name} {label}"] = float((theirs - ours).abs().max())
    # A pass that loses rows between two layers, and the same tensors changed in place.
    a = arguments(6, 2, torch.float32, ROWS)
    ours = Ours()
    extend(ours, a, True)
    keep = torch.tensor([0, 2])
    tokens = torch.cat([torch.arange(0, 1), torch.arange(8, 13)])
    cut = SimpleNamespace(
        **{
            **vars(a),
            "query": a.query[tokens], "rows": a.rows[keep], "kv_lens": a.kv_lens[keep],
            "prefix": a.prefix[keep], "lengths": a.lengths[keep],
        }
    )  # fmt: skip
    out = torch.zeros_like(cut.query)
    ours._run_sdpa_forward_extend(
        cut.query, out, a.k, a.v, a.table, cut.rows, cut.kv_lens, cut.prefix, cut.lengths,
        None, scaling=0.3, enable_gqa=True, causal=True,
    )  # fmt: skip
    worst["after a drop"] = float((out - extend(Stock(), cut, True)).abs().max())
    a.kv_lens -= 1
    a.prefix -= 1
    short = [(c, p) for c, p in ROWS if c]
    b = arguments(6, 2, torch.float32, short)
    before = extend(ours, b, True)
    b.kv_lens += 1
    b.prefix += 1
    after = extend(ours, b, True)
    worst["changed in place"] = float((after - extend(Stock(), b, True)).abs().max())
    moved = float((after - before).abs().max())
    cuts = {
        f"{heads}/{kv_heads} {dtype}": different(heads, kv_heads, dtype)
        for heads, kv_heads in ((4, 4), (6, 2), (9, 3), (14, 2))
        for dtype in (torch.float32, torch.bfloat16)
    }
    print("RESULTS " + json.dumps({"worst": worst, "moved": moved, "cuts": cuts}))


if __name__ == "__main__":
    main()
