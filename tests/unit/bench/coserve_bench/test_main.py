from __future__ import annotations

import json
import os
import subprocess
import sys
import time
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


def test_sigterm_ends_the_engine_too(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps({"vocab_size": 1000}))
    engine, pid_file = tmp_path / "python", tmp_path / "pid"
    say = f"echo $$ > {pid_file}.part; mv {pid_file}.part {pid_file}"
    engine.write_text(f"#!/bin/sh\n{say}\nsleep 60\n")
    engine.chmod(0o755)
    options = ["--model-dir", tmp_path, "--out", tmp_path / "out", "--python", engine]
    command = [sys.executable, "-m", "bench.coserve_bench", "--scale", "1", *map(str, options)]
    with subprocess.Popen(command, cwd=Path(__file__).parents[4], stderr=subprocess.PIPE) as bench:
        try:
            for _ in range(300):
                if pid_file.exists():
                    break
                time.sleep(0.1)
            bench.terminate()
            assert bench.wait(30) == 143
        finally:
            bench.kill()
    with pytest.raises(ProcessLookupError):
        os.kill(int(pid_file.read_text()), 0)
