"""Free memory is that of the container where there is one."""

from __future__ import annotations

from pathlib import Path

import psutil

from engine_adapter.sglang.host_memory import free_bytes


def group(folder: Path, limit: str, used: int, inactive: int) -> Path:
    (folder / "memory.max").write_text(f"{limit}\n")
    (folder / "memory.current").write_text(f"{used}\n")
    (folder / "memory.stat").write_text(f"anon 5\ninactive_file {inactive}\n")
    return folder


def test_a_container_has_what_its_limit_leaves(tmp_path: Path) -> None:
    assert free_bytes(group(tmp_path, "10000", 7000, 500)) == 3500


def test_a_container_that_is_full_has_nothing(tmp_path: Path) -> None:
    assert free_bytes(group(tmp_path, "1000", 7000, 0)) == 0


def test_without_a_limit_the_machine_counts(tmp_path: Path) -> None:
    total = psutil.virtual_memory().total
    assert 0 < free_bytes(group(tmp_path, "max", 7000, 500)) <= total
    assert 0 < free_bytes(tmp_path / "nothing") <= total
