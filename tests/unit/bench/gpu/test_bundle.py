"""What travels to a GPU host: exact versions, our code where it is looked for, and nothing else."""

from __future__ import annotations

import json
import tarfile
import zipfile
from pathlib import Path

from bench.gpu.bundle import (
    LIMIT_BYTES,
    NOTE,
    TRAVEL_BYTES,
    add_our_code,
    pack,
    pins,
    tracked_bytes,
    unpack,
)


def test_every_package_has_one_version() -> None:
    found = pins()
    assert len(found) == len({pin.partition("==")[0] for pin in found})
    assert all(pin.count("==") == 1 for pin in found)
    assert "sglang==0.5.16" in found
    assert "sglang-kernel==0.4.5" in found


def test_what_a_hopper_card_does_not_load_is_left_out(tmp_path: Path) -> None:
    wheel = tmp_path / "sglang_kernel.whl"
    with zipfile.ZipFile(wheel, "w") as packed:
        for name in ("sm90/common_ops.abi3.so", "sm100/common_ops.abi3.so", "flash_ops.abi3.so"):
            packed.writestr(f"sgl_kernel/{name}", b"")
        packed.writestr("sglang_kernel-0.4.5.dist-info/METADATA", b"")
    unpack([wheel], tmp_path / "site")
    left = {str(file.relative_to(tmp_path / "site")) for file in (tmp_path / "site").rglob("*")}
    assert "sgl_kernel/sm90/common_ops.abi3.so" in left
    assert "sglang_kernel-0.4.5.dist-info/METADATA" in left
    assert not any("sm100" in name or "flash_ops" in name for name in left)


def test_our_plugin_is_found_and_hugging_faces_kernels_is_not_shadowed(tmp_path: Path) -> None:
    folder = tmp_path / "bundle"
    site = folder / "site"
    site.mkdir(parents=True)
    add_our_code(folder)
    assert (site / "coserve_kernels" / "gather_pages.py").is_file()
    assert (site / "engine_adapter" / "sglang" / "plugin.py").is_file()
    assert not (site / "kernels").exists()
    entry_points = next(site.glob("*.dist-info/entry_points.txt")).read_text()
    assert "coserve = engine_adapter.sglang.plugin:register" in entry_points
    assert "coserve_cpu" not in entry_points
    assert (folder / "checkout" / "bench" / "gpu" / "host_run.py").is_file()
    size = pack(folder, tmp_path / "bundle.tar.xz")
    assert 0 < size < 2 << 20
    with tarfile.open(tmp_path / "bundle.tar.xz") as packed:
        assert "checkout/bench/gpu/host_run.py" in packed.getnames()
        assert "checkout/tests/engine/scheduler_rig.py" in packed.getnames()


def test_the_archive_and_the_tracked_files_may_travel_together() -> None:
    """The archive is not built here: its size is noted with the packages that it holds."""
    note = json.loads(NOTE.read_text())
    assert note["packages"] == pins(), "`python -m bench.gpu.bundle` writes the note anew"
    assert note["bytes"] <= LIMIT_BYTES
    assert note["bytes"] + tracked_bytes() <= TRAVEL_BYTES
