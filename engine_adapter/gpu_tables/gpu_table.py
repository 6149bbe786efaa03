"""Step times of a GPU, looked up in measured kernel times.

A table holds, for one GPU, model, engine and tensor parallelism, three measured curves, all layers
added up and in milliseconds. A step of prompt chunks ``(p, c)``, p tokens after c cached ones, and
``b`` decoding requests of mean context ``l`` takes

    T = other(P + b) + floor + sum over chunks (chunk(p, c) - floor) + decode(b, l) + host

with ``P`` the sum of the p. ``other`` is everything but attention; ``floor`` is the attention of
the smallest chunk, the part of a kernel that its chunks share. Between grid points a table
is linear; beyond them its last piece goes on. ``host`` is what a step costs outside its kernels.

The tables that ship were made from aiconfigurator-core (``tables/NOTICE.txt``) by
``coserve profile import``.
"""

from __future__ import annotations

import itertools
import json
import math
from bisect import bisect_right
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

FORMAT = 1
FOLDER = Path(__file__).parent / "tables"
MS = 1000.0
DEFAULT_HOST_S = 0.002
"""A constant 2 ms: the best of 0, 1, 2 and 3 against 72 measured runs (``bench.gpu_anchors``)."""

CUDA_GRAPH_BATCH_SIZES = (1, 2, 4, 8, *range(16, 257, 8))
"""Row counts SGLang captures decode graphs for, up to its usual largest."""


class GpuTableError(ValueError):
    """A table cannot be used; the message says which there are or what is wrong."""


@dataclass(frozen=True, slots=True)
class GpuTable:
    """Measured curves and the machine they belong to.

    Attributes:
        name: For example ``"h200-llama-3.1-8b"``.
        gpu: System name of the source, for example ``"h200_sxm"``.
        model: Model name.
        engine: Engine whose kernels were measured, with its version.
        tp: GPUs that share the model.
        source: Where the figures come from, with the licence.
        measured_share: Share of a decode step's time that was measured, not interpolated.
        num_layers: Decoder layers.
        max_context: Longest sequence of the model, in tokens.
        kv_bytes_per_token: KV of one token, all GPUs together.
        kv_tokens: Tokens of KV that fit beside the weights.
        link_bytes_per_s: Host link of one GPU, one direction.
        tokens: Grid of ``prefill_other_ms``.
        prefill_other_ms: All but attention in a step with prompt tokens, by tokens of the step.
        rows: Grid of ``decode_other_ms`` and of the first index of ``decode_ms``.
        decode_other_ms: All but attention in a step of decoding requests alone, by rows.
        context: Grid of cached tokens: the second index of ``chunk_ms`` and ``decode_ms``.
        chunk_tokens: Grid of the first index of ``chunk_ms``.
        chunk_ms: Attention of one chunk behind its cached tokens.
        decode_ms: Attention of decoding requests of the same context.
    """

    name: str
    gpu: str
    model: str
    engine: str
    tp: int
    source: str
    measured_share: float
    num_layers: int
    max_context: int
    kv_bytes_per_token: int
    kv_tokens: int
    link_bytes_per_s: float
    tokens: tuple[int, ...]
    prefill_other_ms: tuple[float, ...]
    rows: tuple[int, ...]
    decode_other_ms: tuple[float, ...]
    context: tuple[int, ...]
    chunk_tokens: tuple[int, ...]
    chunk_ms: tuple[tuple[float, ...], ...]
    decode_ms: tuple[tuple[float, ...], ...]

    def __post_init__(self) -> None:
        """Refuse tables under which more work would take less time.

        Raises:
            GpuTableError: If a grid does not increase, a curve decreases or a size does not fit.
        """
        for grid in (self.tokens, self.rows, self.context, self.chunk_tokens):
            if len(grid) < 2 or any(a >= b for a, b in itertools.pairwise(grid)):
                raise GpuTableError(f"{self.name}: a grid has to increase, not {list(grid)}")
        for grid, curve in (
            (self.tokens, self.prefill_other_ms),
            (self.rows, self.decode_other_ms),
            *((self.context, row) for row in (*self.chunk_ms, *self.decode_ms)),
            *((self.chunk_tokens, column) for column in zip(*self.chunk_ms, strict=True)),
            *((self.rows, column) for column in zip(*self.decode_ms, strict=True)),
        ):
            if len(curve) != len(grid):
                raise GpuTableError(f"{self.name}: {len(curve)} times for {len(grid)} grid points")
            if not all(0.0 <= a <= b for a, b in itertools.pairwise(curve)):
                raise GpuTableError(f"{self.name}: times must not decrease: {list(curve)}")


class GpuTimes:
    """Step times of a table, in seconds.

    Args:
        table: The measured curves.
        host_s: Time a step takes outside its kernels.
        row_buckets: Row counts a captured decode graph exists for: a decode-only step is padded to
            the next of them. Empty when nothing is padded.
    """

    def __init__(
        self,
        table: GpuTable,
        host_s: float = DEFAULT_HOST_S,
        batch_size_buckets: Iterable[int] = (),
    ) -> None:
        self.table = table
        self.host_s = host_s
        self.batch_size_buckets = tuple(sorted(batch_size_buckets))
        self._prefill_other = _Line(table.tokens, table.prefill_other_ms)
        self._decode_other = _Line(table.rows, table.decode_other_ms)
        self._chunk = _Sheet(table.chunk_tokens, table.context, table.chunk_ms)
        self._decode = _Sheet(table.rows, table.context, table.decode_ms)
        self._floor_ms = table.chunk_ms[0][0]

    def chunk_attention_s(self, num_tokens: int, context_tokens: int) -> float:
        """Attention of one chunk alone, all layers."""
        return self._chunk.at(num_tokens, context_tokens) / MS

    def decode_attention_s(self, num_rows: int, mean_context: float) -> float:
        """Attention of decoding requests, all layers."""
        return self._decode.at(num_rows, mean_context) / MS if num_rows else 0.0

    def step_s(
        self,
        chunks: Sequence[tuple[int, int]] = (),
        decode_rows: int = 0,
        decode_context: int = 0,
    ) -> float:
        """Duration of a step.

        Args:
            chunks: ``(num_tokens, context_tokens)`` of every prompt chunk.
            decode_rows: Decoding requests in the step.
            decode_context: KV tokens that all decoding requests hold together.

        Returns:
            Seconds; 0 for an empty step.
        """
        if not chunks and not decode_rows:
            return 0.0
        attention_ms = (
            self._decode.at(decode_rows, decode_context / decode_rows) if decode_rows else 0.0
        )
        if not chunks:
            rows = decode_rows
            if self.batch_size_buckets:
                place = bisect_right(self.batch_size_buckets, rows - 1)
                rows = (
                    self.batch_size_buckets[place] if place < len(self.batch_size_buckets) else rows
                )
            return (self._decode_other.at(rows) + attention_ms) / MS + self.host_s
        total = decode_rows
        floor_ms = self._floor_ms
        for num_tokens, context_tokens in chunks:
            total += num_tokens
            attention_ms += self._chunk.at(num_tokens, context_tokens) - floor_ms
        other_ms = self._prefill_other.at(total)
        return (other_ms + attention_ms + floor_ms) / MS + self.host_s


class _Line:
    """A curve, linear between its points; level below the first, going on above the last."""

    __slots__ = ("_last", "_slopes", "_xs", "_ys")

    def __init__(self, xs: Sequence[int], ys: Sequence[float]) -> None:
        self._xs, self._ys = xs, ys
        self._slopes = [(ys[i + 1] - ys[i]) / (xs[i + 1] - xs[i]) for i in range(len(xs) - 1)]
        self._last = len(xs) - 2

    def at(self, x: float) -> float:
        xs = self._xs
        if x <= xs[0]:
            return self._ys[0]
        place = min(bisect_right(xs, x) - 1, self._last)
        return self._ys[place] + self._slopes[place] * (x - xs[place])


class _Sheet:
    """A surface, linear in both directions between its points, as :class:`_Line` beyond them."""

    __slots__ = ("_last", "_lines", "_xs")

    def __init__(
        self, xs: Sequence[int], ys: Sequence[int], values: Sequence[Sequence[float]]
    ) -> None:
        self._xs = xs
        self._lines = [_Line(ys, row) for row in values]
        self._last = len(xs) - 2

    def at(self, x: float, y: float) -> float:
        xs = self._xs
        if x <= xs[0]:
            return self._lines[0].at(y)
        place = min(bisect_right(xs, x) - 1, self._last)
        low, high = self._lines[place].at(y), self._lines[place + 1].at(y)
        return low + (high - low) * (x - xs[place]) / (xs[place + 1] - xs[place])


def gpu_table_names() -> list[str]:
    """Names of the tables that ship."""
    return sorted(path.stem for path in FOLDER.glob("*.json"))


def load_gpu_table(name: str) -> GpuTable:
    """A shipped table by name, or any table by the path of its file.

    Raises:
        GpuTableError: If there is none, or the file is no table.
    """
    path = Path(name) if name.endswith(".json") else FOLDER / f"{name}.json"
    if not path.is_file():
        raise GpuTableError(f"no GPU table {name!r}; there are {', '.join(gpu_table_names())}")
    try:
        return _from_plain(json.loads(path.read_text()))
    except (OSError, KeyError, TypeError, ValueError) as error:
        raise GpuTableError(f"{path} is no GPU table: {error}") from error


def to_json(table: GpuTable) -> str:
    """The text of a table's file: one curve a line."""
    plain = {"format": FORMAT, **asdict(table)}
    lines = ",\n".join(f'"{key}":{json.dumps(value)}' for key, value in plain.items())
    return "{" + lines + "}\n"


def _from_plain(plain: Mapping[str, Any]) -> GpuTable:
    if plain["format"] != FORMAT:
        raise ValueError(f"format {plain['format']}, expected {FORMAT}")
    values = {field.name: _frozen(plain[field.name]) for field in fields(GpuTable)}
    return GpuTable(**values)


def _frozen(value: Any) -> Any:
    if isinstance(value, list):
        return tuple(_frozen(item) for item in value)
    if isinstance(value, float) and not math.isfinite(value):
        raise ValueError(f"{value} where a time belongs")
    return value
