"""Triton is installed for tests only, beside an engine that must not see it."""

from __future__ import annotations

import hashlib
import subprocess
import sys
from pathlib import Path

import pytest

from coserve.setup.tools import set_up_triton, triton_dir

ROOT = Path(__file__).parents[4]
FROZEN = ROOT / "requirements" / "kernels-test.txt"


def test_without_an_engine_nothing_is_installed(tmp_path: Path) -> None:
    assert set_up_triton(tmp_path) is None
    assert not triton_dir(tmp_path).exists()


def test_a_second_run_installs_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COSERVE_DEVICE", "cpu")
    (tmp_path / "requirements").mkdir()
    (tmp_path / "requirements" / FROZEN.name).write_bytes(FROZEN.read_bytes())
    venv = tmp_path / ".venv-engine"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", venv], check=True)
    target = triton_dir(tmp_path)
    target.mkdir(parents=True)
    tag = f"{sys.implementation.cache_tag}\n".encode()
    (target / "coserve-stamp").write_text(
        hashlib.sha256(tag + FROZEN.read_bytes()).hexdigest() + "\n"
    )
    assert set_up_triton(tmp_path) == target
    assert "ready" in capsys.readouterr().out


def test_there_is_a_wheel_for_every_supported_python() -> None:
    assert FROZEN.read_text().count("--hash=sha256:") == 3
