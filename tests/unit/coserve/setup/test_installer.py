"""Getting uv: what is there is used, and a host without any way says what to install."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from coserve.setup import installer
from coserve.setup.progress import SetupFailed


def make_uv(folder: Path, version: str) -> Path:
    folder.mkdir(parents=True)
    made = folder / "uv"
    made.write_text(f"#!/bin/sh\necho uv {version}\n")
    made.chmod(0o755)
    return made


def test_the_one_on_path_comes_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    on_path = make_uv(tmp_path / "bin", "0.13.8")
    make_uv(tmp_path / "checkout/.tools/bin", "0.13.8")
    monkeypatch.setenv("PATH", f"{on_path.parent}:{os.defpath}")
    assert installer.get_uv(tmp_path / "checkout") == on_path


def test_one_that_is_too_old_is_passed_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    old = make_uv(tmp_path / "bin", "0.1.2")
    own = make_uv(tmp_path / "checkout/.tools/bin", "0.13.8")
    monkeypatch.setenv("PATH", f"{old.parent}:{os.defpath}")
    assert installer.get_uv(tmp_path / "checkout") == own


def test_without_any_way_the_host_is_told_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    crippled = tmp_path / "python"  # no venv, no pip
    crippled.write_text("#!/bin/sh\necho 'No module named pip' >&2\nexit 1\n")
    crippled.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(sys, "executable", str(crippled))
    with pytest.raises(SetupFailed, match="install uv, or Python's venv and pip"):
        installer.get_uv(tmp_path / "checkout")
