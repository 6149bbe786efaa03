"""Makes GPU tables from the measured kernels of the package aiconfigurator-core.

The package is an optional extra (``gpu-tables``); nothing else needs it. It answers how long each
kernel of a static batch takes; a table keeps the sums over kernels that a step's time is made of
(:mod:`engine_adapter.gpu_tables.gpu_table`), smoothed so that more work never takes less time.
"""

from __future__ import annotations

import importlib
import importlib.metadata
import json
import logging
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from engine_adapter.gpu_tables.gpu_table import GpuTable

# --- The nearest curve, and surface, that never decreases.
#
# Pool adjacent violators (Barlow and others, *Statistical Inference under Order Restrictions*,
# 1972):


def isotonic(values: Sequence[float]) -> list[float]:
    """The non-decreasing sequence with the least squared distance to ``values``."""
    blocks: list[tuple[float, int]] = []
    for value in values:
        mean, count = float(value), 1
        while blocks and blocks[-1][0] > mean:
            other, num = blocks.pop()
            mean = (other * num + mean * count) / (num + count)
            count += num
        blocks.append((mean, count))
    return [mean for mean, count in blocks for _ in range(count)]


def isotonic_surface(rows: Sequence[Sequence[float]]) -> list[list[float]]:
    """A surface that decreases in neither direction: every column smoothed, then every row.

    Smoothing keeps order: of two sequences of which one is nowhere above the other it makes two
    for which that is still so. So the rows cannot put the columns out of order again.
    """
    columns = [isotonic(column) for column in zip(*rows, strict=True)]
    return [isotonic(row) for row in zip(*columns, strict=True)]


PACKAGE = "aiconfigurator-core"
MEMORY_SHARE = 0.9
"""Share of a GPU's memory that weights, KV and the engine may take."""

TOKENS = (
    1, 2, 4, 8, 12, 16, 24, 32, 48, 64, 80, 96, 112, 128, 144, 160, 192, 224, 256, 320, 384, 448,
    512, 640, 768, 896, 1024, 1280, 1536, 2048, 3072, 4096, 6144, 8192, 12288, 16384,
)  # fmt: skip
ROWS = (1, 2, 4, 8, 16, 24, 32, 48, 64, 96, 128, 160, 192, 256, 384, 512)
CONTEXT = (0, 128, 256, 512, 1024, 2048, 4096, 8192, 16384, 32768, 65536)
CHUNK_TOKENS = (16, 32, 64, 128, 256, 512, 1024, 2048, 4096, 8192)
BATCH, DECODE_CONTEXT = 1, 1024

_LLAMA_8B, _LLAMA_70B = "meta-llama/Meta-Llama-3.1-8B", "meta-llama/Meta-Llama-3.1-70B"
_QWEN_32B = "Qwen/Qwen3-32B"


class ImportRefusedError(RuntimeError):
    """A table cannot be made; the message says what is missing."""


@dataclass(frozen=True, slots=True)
class Wanted:
    """One table to make: GPU system, model and tensor parallelism."""

    gpu: str
    model: str
    tp: int

    @property
    def name(self) -> str:
        """Name of the table, for example ``"h200-llama-3.1-8b"``."""
        gpu = self.gpu.removesuffix("_sxm")
        model = self.model.rsplit("/", 1)[-1].lower().removeprefix("meta-")
        return f"{gpu}-{model}" + (f"-tp{self.tp}" if self.tp > 1 else "")


SHIPPED = tuple(
    Wanted(gpu, model, tp)
    for gpu in ("h100_sxm", "h200_sxm", "a100_sxm", "l40s")
    for model, tps in (
        (_LLAMA_8B, (1,)),
        # The measured runs that tables are checked against are of H100s with 2, 4 and 8 GPUs.
        (_QWEN_32B, (2, 4, 8) if gpu == "h100_sxm" else (2,)),
        (_LLAMA_70B, (4,)),
    )
    for tp in tps
)


def make_table(wanted: Wanted) -> GpuTable:
    """Ask the package for every grid point.

    Raises:
        ImportRefusedError: If the package is missing or has no data of this GPU and model.
    """
    source = _Source(wanted)
    prefill_other = isotonic([source.prefill(BATCH, tokens)[0] for tokens in TOKENS])
    decode_other = isotonic([source.decode(rows, DECODE_CONTEXT)[0] for rows in ROWS])
    chunk = isotonic_surface(
        [[source.prefill(BATCH, p, c)[1] for c in CONTEXT] for p in CHUNK_TOKENS]
    )
    decode = isotonic_surface([[source.decode(b, max(c, 1))[1] for c in CONTEXT] for b in ROWS])
    version = importlib.metadata.version(PACKAGE)
    return GpuTable(
        name=wanted.name,
        gpu=wanted.gpu,
        model=wanted.model,
        engine=source.engine,
        tp=wanted.tp,
        source=f"{PACKAGE} {version} (Apache-2.0): sums of measured kernels",
        measured_share=round(source.measured_share(ROWS), 4),
        num_layers=source.config["num_hidden_layers"],
        max_context=source.config["max_position_embeddings"],
        kv_bytes_per_token=source.kv_bytes_per_token,
        kv_tokens=source.kv_tokens,
        link_bytes_per_s=float(source.system["node"]["pcie_bw"]),
        tokens=TOKENS,
        prefill_other_ms=_short(prefill_other),
        rows=ROWS,
        decode_other_ms=_short(decode_other),
        context=CONTEXT,
        chunk_tokens=CHUNK_TOKENS,
        chunk_ms=tuple(_short(row) for row in chunk),
        decode_ms=tuple(_short(row) for row in decode),
    )


class _Source:
    """One compiled model of the package; times in milliseconds."""

    def __init__(self, wanted: Wanted) -> None:
        try:
            package = importlib.import_module("aiconfigurator_core")
            engine = importlib.import_module("aiconfigurator_core.sdk.engine")
            yaml = importlib.import_module("yaml")
        except ImportError as error:
            raise ImportRefusedError(
                f"{PACKAGE} is missing ({error}). In the checkout: "
                'uv pip install -e ".[gpu-tables]", with the uv of .venv/bin.'
            ) from error
        root = Path(str(package.__file__)).parent
        config = root / "model_configs" / f"{wanted.model.replace('/', '--')}_config.json"
        system = root / "systems" / f"{wanted.gpu}.yaml"
        for path in (config, system):
            if not path.is_file():
                raise ImportRefusedError(f"{PACKAGE} has no {path.name}")
        self.config: dict[str, Any] = json.loads(config.read_text())
        self.system: dict[str, Any] = yaml.safe_load(system.read_text())
        self._tp = wanted.tp
        slots = yaml.safe_load((root / "systems" / "query_versions.yaml").read_text())
        given = {**slots["defaults"], **slots["overrides"].get(wanted.gpu, {})}
        self.engine = f"sglang {given['sglang']['current']}"
        with _quiet():
            try:
                self._handle = engine.EngineHandle.compile(
                    wanted.model,
                    wanted.gpu,
                    "sglang",
                    backend_version=given["sglang"]["current"],
                    tp_size=wanted.tp,
                )
            except Exception as error:
                raise ImportRefusedError(f"{PACKAGE} has no {wanted.name}: {error}") from error

    def prefill(self, batch: int, tokens: int, past: int = 0) -> tuple[float, float]:
        """All but attention, and attention, of a batch of chunks."""
        with _quiet():
            ops, _ = self._handle.run_static_per_op(
                batch_size=batch, isl=tokens + past, osl=2, prefix=past, mode="static"
            )
        return _split(ops)

    def decode(self, rows: int, context: int) -> tuple[float, float]:
        """Likewise of a decode step."""
        return _split(self._decode_ops(rows, context))

    def measured_share(self, rows: Iterable[int]) -> float:
        """Share of decode time that comes from measurements of exactly this kernel."""
        ops = [op for num in rows for op in self._decode_ops(num, DECODE_CONTEXT)]
        measured = sum(op[1] for op in ops if op[3] == "silicon")
        return float(measured / sum(op[1] for op in ops))

    def _decode_ops(self, rows: int, context: int) -> list[Any]:
        with _quiet():
            _, ops = self._handle.run_static_per_op(
                batch_size=rows, isl=context, osl=2, mode="static"
            )
        return list(ops)

    @property
    def kv_bytes_per_token(self) -> int:
        """Keys and values of all layers, two bytes each."""
        return 4 * int(self.config["num_hidden_layers"] * self._kv_heads * self._head_dim)

    @property
    def kv_tokens(self) -> int:
        """What is left of every GPU's memory beside its part of the weights, in tokens."""
        gpu, misc = self.system["gpu"], self.system["misc"]
        free = MEMORY_SHARE * gpu["mem_capacity"] - misc["other_mem"]
        free -= misc["nccl_mem"].get(self._tp, 0) + self._weight_bytes / self._tp
        return max(0, int(free * self._tp / self.kv_bytes_per_token))

    @property
    def _kv_heads(self) -> int:
        return int(self.config["num_key_value_heads"])

    @property
    def _head_dim(self) -> int:
        heads = self.config["num_attention_heads"]
        return int(self.config.get("head_dim") or self.config["hidden_size"] // heads)

    @property
    def _weight_bytes(self) -> float:
        """Of a dense transformer with gated feed-forward layers, two bytes a weight."""
        config, hidden = self.config, self.config["hidden_size"]
        heads = 2 * config["num_attention_heads"] + 2 * self._kv_heads
        layer = hidden * (heads * self._head_dim + 3 * config["intermediate_size"])
        weights = config["num_hidden_layers"] * layer + 2 * config["vocab_size"] * hidden
        return 2.0 * float(weights)


@contextmanager
def _quiet() -> Iterator[None]:
    """The package logs a line for every kernel it interpolates."""
    before = logging.root.manager.disable
    logging.disable(logging.WARNING)
    try:
        yield
    finally:
        logging.disable(before)


def _split(ops: Iterable[Any]) -> tuple[float, float]:
    attention = total = 0.0
    for name, ms, *_ in ops:
        total += ms
        if name.endswith("_attention"):
            attention += ms
    return total - attention, attention


def _short(values: Iterable[float]) -> tuple[float, ...]:
    """Five digits: measurements are not better, and equal neighbours stay equal."""
    return tuple(float(f"{value:.5g}") for value in values)
