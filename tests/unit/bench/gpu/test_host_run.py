"""The run on a GPU host keeps its time limit and its results, whatever a stage does."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from bench.coserve_bench.options import parse_options
from bench.gpu.geometry import GEOMETRIES, write_model
from bench.gpu.host_run import FIRST, SECOND, Stage, engine_python, options, run, stages


def stage(code: str) -> Stage:
    return Stage("stage", [sys.executable, "-c", code], 60.0, {})


def test_results_are_read_from_the_log(tmp_path: Path) -> None:
    report = run(stage("print('noise'); print('RESULTS {\"gpu\": \"x\"}')"), tmp_path, 60.0)
    assert report["status"] == 0
    assert report["results"] == {"gpu": "x"}


def test_a_stage_that_fails_leaves_its_log(tmp_path: Path) -> None:
    report = run(stage("raise SystemExit('no such device')"), tmp_path, 60.0)
    assert report["status"] == 1
    assert "no such device" in (tmp_path / "stage.log").read_text()


def test_a_stage_that_hangs_is_ended(tmp_path: Path) -> None:
    """Also where SIGINT is ignored, as in a shell's background job."""
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        code = "import time; print('ready', flush=True); time.sleep(600); print('slept')"
        report = run(stage(code), tmp_path, 5.0)
    finally:
        signal.signal(signal.SIGINT, before)
    assert report["status"] == "out of time"
    assert "KeyboardInterrupt" in (tmp_path / "stage.log").read_text()


def test_the_bundles_packages_come_first(tmp_path: Path) -> None:
    python = engine_python(tmp_path, None)
    path = subprocess.run(
        [python, "-c", "import sys; print(sys.path)"], capture_output=True, text=True, check=True
    ).stdout
    assert "/site'" in path
    assert engine_python(tmp_path, Path(sys.executable)) == Path(sys.executable)


def test_the_large_geometry_has_the_kv_of_llama_8b(tmp_path: Path) -> None:
    config = json.loads((write_model(tmp_path / "m", "llama-3.1-8b") / "config.json").read_text())
    row = config["num_key_value_heads"] * config["head_dim"] * 2
    assert 2 * config["num_hidden_layers"] * row == 128 << 10
    assert set(GEOMETRIES) == {"llama-3.1-8b", "tiny"}


def test_the_first_run_has_every_stage_and_the_second_the_comparison(tmp_path: Path) -> None:
    def names(*given: str) -> list[str]:
        args = options(["--out", str(tmp_path), *given])
        return [stage.name for stage in stages(args, Path("python"), tmp_path)]

    assert names() == list(FIRST)
    assert names("--stages", ",".join(SECOND)) == list(SECOND)
    on_a_cpu = [name for name in FIRST if name not in ("kernels", "bandwidth")]
    assert names("--device", "cpu", "--geometry", "tiny") == on_a_cpu


def test_no_stage_makes_one_system_slower_than_another(tmp_path: Path) -> None:
    """Seeds that only our plugin honours cost a transfer for each batch with this backend."""
    args = options(["--out", str(tmp_path), "--stages", ",".join((*FIRST, *SECOND))])
    assert not any(
        "--sampling-backend" in word
        for stage in stages(args, Path("python"), tmp_path)
        for word in stage.argv
    )


@pytest.mark.parametrize("device", ["cpu", "cuda"])
def test_engine_and_comparison_are_asked_for_with_options_that_they_have(
    device: str, tmp_path: Path
) -> None:
    """An option that is gone would show on the card, after everything before it."""
    python = Path(sys.executable)
    args = options(["--out", str(tmp_path), "--device", device, "--stages", "engine,compare"])
    engine, compare = stages(args, python, tmp_path)
    assert engine.argv[1:4] == ["-m", "bench.gpu.one_engine", "--alone-s"]
    assert compare.argv[1:3] == ["-m", "bench.coserve_bench"]
    one, several = parse_options(engine.argv[5:]), parse_options(compare.argv[3:])
    assert one.systems == ("conserve-v2",)
    assert several.systems == ("online-only", "conserve-v2", "non-preemptive")
    assert one.profile_dir == several.profile_dir, "the second run takes the first one's profile"
    assert one.engine_args == several.engine_args
    assert (one.slots, one.chunk_tokens) == (several.slots, several.chunk_tokens)
