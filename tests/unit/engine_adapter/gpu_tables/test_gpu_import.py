"""Making tables: against a package of its shape, since the real one is an optional extra."""

from __future__ import annotations

import importlib.metadata
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from engine_adapter.gpu_tables.gpu_import import PACKAGE, ImportRefusedError, Wanted, make_table
from engine_adapter.gpu_tables.gpu_table import GpuTimes

PARTS = {
    "__init__.py": "",
    "sdk/__init__.py": "",
    "sdk/engine.py": """
class EngineHandle:
    @classmethod
    def compile(cls, model, gpu, backend, *, backend_version, tp_size):
        assert (backend, backend_version, tp_size) == ("sglang", "9.9", 2)
        return cls()

    def run_static_per_op(self, *, batch_size, isl, osl, mode, prefix=0):
        # A dip at 8 tokens, as noise makes them; attention 1 ms per 1,000 tokens of context.
        tokens = isl - prefix
        gemm = 1.0 + tokens / 100 - (0.5 if tokens == 8 else 0.0)
        context = [("context_gemm", gemm, 0, "silicon"),
                   ("context_attention", isl / 1e3, 0, "silicon")]
        decode = [("generation_gemm", 1.0 + batch_size / 100, 0, "silicon"),
                  ("generation_attention", batch_size * isl / 1e3, 0, "interpolated")]
        return context, decode
""",
    "model_configs/some--Model-1B_config.json": """{
        "num_hidden_layers": 10, "num_key_value_heads": 2, "num_attention_heads": 8,
        "hidden_size": 512, "intermediate_size": 1000, "vocab_size": 1000,
        "max_position_embeddings": 4096}""",
    "systems/x1_sxm.yaml": """
gpu: {mem_capacity: 1000000000}
node: {pcie_bw: 64000000000}
misc: {other_mem: 100000000, nccl_mem: {2: 1000000}}
""",
    "systems/query_versions.yaml": """
defaults: {sglang: {current: "1.0"}}
overrides: {x1_sxm: {sglang: {current: "9.9"}}}
""",
    f"../{PACKAGE.replace('-', '_')}-1.2.3.dist-info/METADATA": (
        f"Metadata-Version: 2.1\nName: {PACKAGE}\nVersion: 1.2.3\n"
    ),
}


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    for name, text in PARTS.items():
        path = tmp_path / "aiconfigurator_core" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    monkeypatch.syspath_prepend(tmp_path)
    _forget()
    yield
    _forget()


def _forget() -> None:
    for name in [name for name in sys.modules if name.startswith("aiconfigurator_core")]:
        del sys.modules[name]


def test_a_table_is_the_sum_of_kernels_by_kind(package: None) -> None:
    table = make_table(Wanted("x1_sxm", "some/Model-1B", 2))
    assert (table.name, table.engine) == ("x1-model-1b-tp2", "sglang 9.9")
    assert table.source.startswith(f"{PACKAGE} 1.2.3 (Apache-2.0)")
    assert (table.num_layers, table.max_context) == (10, 4096)
    assert table.kv_bytes_per_token == 4 * 10 * 2 * 64
    weights = 2 * (10 * 512 * ((2 * 8 + 2 * 2) * 64 + 3 * 1000) + 2 * 1000 * 512)
    free = 2 * (0.9e9 - 100e6 - 1e6) - weights
    assert table.kv_tokens == int(free / table.kv_bytes_per_token)
    assert 0.0 < table.measured_share < 1.0
    times = GpuTimes(table, host_s=0.0)
    assert times.step_s((), 4, 4 * 2048) == pytest.approx((1.04 + 8.192) / 1e3, rel=1e-4)
    assert times.step_s(((512, 512),)) == pytest.approx((1.0 + 5.12 + 1.024) / 1e3, rel=1e-4)
    # The dip at 8 tokens is gone: its neighbours and it have one value.
    place = table.tokens.index(8)
    assert table.prefill_other_ms[place] == table.prefill_other_ms[place - 1]


def test_what_the_package_does_not_have_is_said(package: None) -> None:
    with pytest.raises(ImportRefusedError, match=r"has no x2\.yaml"):
        make_table(Wanted("x2", "some/Model-1B", 2))
    with pytest.raises(ImportRefusedError, match="has no x1-model-1b-tp4"):
        make_table(Wanted("x1_sxm", "some/Model-1B", 4))


def test_without_the_package_the_extra_is_named() -> None:
    try:
        importlib.metadata.version(PACKAGE)
    except importlib.metadata.PackageNotFoundError:
        with pytest.raises(ImportRefusedError, match=r"\.\[gpu-tables\]"):
            make_table(Wanted("h100_sxm", "Qwen/Qwen3-32B", 2))
    else:
        pytest.skip("the package is installed here")
