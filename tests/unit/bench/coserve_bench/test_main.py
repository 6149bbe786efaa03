from __future__ import annotations

import json
from pathlib import Path

import pytest

from bench.coserve_bench.__main__ import main


def run(tmp_path: Path, *argv: str) -> int:
    (tmp_path / "config.json").write_text(json.dumps({"vocab_size": 1000}))
    common = ["--model-dir", str(tmp_path), "--out", str(tmp_path / "out"), "--scale", "1"]
    return main([*common, *argv])


def test_an_unknown_system_is_refused_before_anything_starts(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(tmp_path, "--systems", "fastest") == 2
    assert "unknown system 'fastest'; choose among online-only" in capsys.readouterr().err


def test_a_missing_trace_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(tmp_path, "--online", "nowhere.csv") == 2
    assert "no workload 'nowhere.csv'" in capsys.readouterr().err


def test_an_engine_that_does_not_start_is_told_with_its_log(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    broken = tmp_path / "python"
    broken.write_text("#!/bin/sh\necho the engine is not here\nexit 3\n")
    broken.chmod(0o755)
    assert run(tmp_path, "--python", str(broken), "--systems", "online-only") == 1
    told = capsys.readouterr().err
    assert "engine ended with 3" in told
    assert "the engine is not here" in told
