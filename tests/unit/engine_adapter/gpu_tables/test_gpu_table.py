"""GPU step tables: those that ship, and what is predicted between their points."""

from __future__ import annotations

import itertools
import json
from dataclasses import replace
from pathlib import Path

import pytest

from engine_adapter.gpu_tables.gpu_import import SHIPPED
from engine_adapter.gpu_tables.gpu_table import (
    FOLDER,
    GpuTable,
    GpuTableError,
    GpuTimes,
    gpu_table_names,
    load_gpu_table,
    to_json,
)


def small(**changed: object) -> GpuTable:
    """Round numbers: other 1 ms plus 1 ms per 100 tokens; attention 2 ms, 3 ms behind 1,000."""
    table = GpuTable(
        name="small", gpu="none", model="m", engine="e", tp=1, source="made up",
        measured_share=1.0, num_layers=4, max_context=4096, kv_bytes_per_token=8, kv_tokens=1000,
        link_bytes_per_s=1e9,
        tokens=(1, 101, 201), prefill_other_ms=(1.0, 2.0, 3.0),
        rows=(1, 11), decode_other_ms=(1.0, 2.0),
        context=(0, 1000), chunk_tokens=(10, 110),
        chunk_ms=((2.0, 3.0), (4.0, 5.0)),
        decode_ms=((0.0, 1.0), (0.0, 11.0)),
    )  # fmt: skip
    return replace(table, **changed)  # type: ignore[arg-type]


def test_every_table_that_should_ship_does_with_its_notice() -> None:
    assert gpu_table_names() == sorted(wanted.name for wanted in SHIPPED)
    assert "Apache License, Version 2.0" in (FOLDER / "NOTICE.txt").read_text()
    for wanted in SHIPPED:
        table = load_gpu_table(wanted.name)
        assert (table.gpu, table.model, table.tp) == (wanted.gpu, wanted.model, wanted.tp)
        assert "Apache-2.0" in table.source
        assert table.measured_share > 0.85
        assert table.kv_tokens > 40_000


@pytest.mark.parametrize(
    ("chunks", "rows", "context", "expected_ms"),
    [
        ((), 0, 0, 0.0),
        ((), 1, 500, 1.5),
        ((), 6, 6000, 1.5 + 6.0),  # half way between 1 and 11 rows
        ((), 21, 0, 3.0),  # the last piece goes on
        (((10, 0),), 0, 0, 1.09 + 2.0),
        (((60, 500),), 0, 0, 1.59 + 3.5),
        (((5, 0),), 0, 0, 1.04 + 2.0),  # below the grid attention is level
        (((10, 0), (110, 1000)), 0, 0, 2.19 + 2.0 + 3.0),  # what kernels share counts once
        (((110, 0),), 11, 11_000, 2.20 + 4.0 + 11.0),
    ],
)
def test_a_step_is_the_sum_of_its_parts(
    chunks: tuple[tuple[int, int], ...], rows: int, context: int, expected_ms: float
) -> None:
    times = GpuTimes(small(), host_s=0.0)
    assert times.step_s(chunks, rows, context) * 1e3 == pytest.approx(expected_ms, abs=0.011)
    if expected_ms:
        later = GpuTimes(small(), host_s=0.002).step_s(chunks, rows, context)
        assert later == pytest.approx(times.step_s(chunks, rows, context) + 0.002)


def test_captured_graphs_pad_decode_steps_only() -> None:
    plain, padded = GpuTimes(small(), 0.0), GpuTimes(small(), 0.0, batch_size_buckets=(8, 11))
    assert padded.step_s((), 5, 0) == plain.step_s((), 8, 0) > plain.step_s((), 5, 0)
    assert padded.step_s((), 8, 0) == plain.step_s((), 8, 0)
    assert padded.step_s((), 20, 0) == plain.step_s((), 20, 0)  # beyond every graph
    assert padded.step_s(((10, 0),), 5, 0) == plain.step_s(((10, 0),), 5, 0)


@pytest.mark.parametrize("name", gpu_table_names())
def test_more_work_never_takes_less_time(name: str) -> None:
    times = GpuTimes(load_gpu_table(name))
    grid = (1, 7, 20, 130, 700, 5_000)
    for small_one, large in itertools.pairwise(grid):
        for other in grid:
            assert times.step_s(((small_one, other),)) <= times.step_s(((large, other),))
            assert times.step_s(((other, small_one),)) <= times.step_s(((other, large),))
            assert times.step_s((), small_one, small_one * other) <= times.step_s(
                (), large, large * other
            )
            beside = times.step_s(((other, 0),), small_one, small_one * 100)
            assert times.step_s(((other, 0),)) <= beside


def test_published_prefill_of_an_h100() -> None:
    """ConServe v2, section 2: 2,048 tokens take 51 ms fresh and 124 ms behind 40K."""
    times = GpuTimes(load_gpu_table("h100-llama-3.1-8b"), host_s=0.0)
    assert times.step_s(((2048, 0),)) == pytest.approx(0.051, rel=0.12)
    assert times.step_s(((2048, 40_960),)) == pytest.approx(0.124, rel=0.12)


def test_a_file_is_read_back_as_it_was(tmp_path: Path) -> None:
    path = tmp_path / "mine.json"
    path.write_text(to_json(small()))
    assert load_gpu_table(str(path)) == small()


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"tokens": (1, 1, 201)}, "has to increase"),
        ({"prefill_other_ms": (1.0, 0.5, 3.0)}, "must not decrease"),
        ({"prefill_other_ms": (1.0, 2.0)}, "2 times for 3 grid points"),
        ({"decode_ms": ((0.0, 1.0), (0.0, 0.5))}, "must not decrease"),
    ],
)
def test_a_table_that_makes_no_sense_is_refused(changed: dict[str, object], message: str) -> None:
    with pytest.raises(GpuTableError, match=message):
        small(**changed)


def test_a_file_that_is_no_table_is_refused(tmp_path: Path) -> None:
    with pytest.raises(GpuTableError, match="there are a100-llama-3"):
        load_gpu_table("z80-llama")
    path = tmp_path / "x.json"
    for text in ("{", "{}", json.dumps({"format": 2}), to_json(small()).replace("2.0", "NaN")):
        path.write_text(text)
        with pytest.raises(GpuTableError, match="is no GPU table"):
            load_gpu_table(str(path))
