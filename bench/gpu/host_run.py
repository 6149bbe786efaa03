"""Everything worth knowing of one GPU, inside eight minutes, each result a file of its own.

    tar xJf bundle.tar.xz -C b && cd b/checkout && python3 -m bench.gpu.host_run --out OUT

Stages, in this order; one that fails or runs out of time leaves its log and the next one runs:

    imports     versions; torch and SGLang's kernels import
    kernels     the page kernels against their oracles, compiled, on two streams
    bandwidth   checkpoints and restores beside plain torch and SGLang's kernel; pinning
    run_ahead   from the word to stop to a free device, on real events
    mechanisms  the engine's tests of aborts, drops, retracts and restores, on the card
    engine      one engine of an 8B model: its profile, chat beside a batch, chat alone

A second run has ``--stages imports,compare``: stock SGLang beside ours, each in a fresh engine.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import subprocess
import sys
import tarfile
import time
from dataclasses import dataclass
from pathlib import Path

from bench.gpu.geometry import GEOMETRIES, write_model

CHECKOUT = Path(__file__).resolve().parents[2]
SITE = CHECKOUT.parent / "site"
JIT = CHECKOUT.parent / "jit"
BUDGET_S = 470.0
MAX_FILE_BYTES = 8 << 20
FIRST = "imports", "kernels", "bandwidth", "run_ahead", "mechanisms", "engine"
SECOND = ("compare",)
IMPORTS = (
    "import json, platform, torch, triton, sgl_kernel, sglang, flashinfer.sampling\n"
    "from importlib.metadata import version\n"
    "names = ('sglang', 'sglang-kernel', 'torch', 'triton', 'transformers', 'flashinfer-python')\n"
    "print('RESULTS ' + json.dumps({'python': platform.python_version(),\n"
    "    'gpu': torch.cuda.get_device_name(), 'cuda': torch.version.cuda,\n"
    "    'memory_bytes': torch.cuda.get_device_properties(0).total_memory,\n"
    "    'versions': {name: version(name) for name in names}}))\n"
)
CPU_IMPORTS = "import torch, sglang; print('RESULTS {}')\n"
# Online at about half of what one Hopper card prefills of this model; offline requests of the
# papers' lengths, always enough of them. Gamma arrivals with CV 0.5, 4096/256 tokens (ConServe v2).
CASES = {"gamma": "--rate 2 --cv 0.5 --input-tokens 4096 --output-tokens 256"}
CUDA_LOAD = (
    "--offline-input-tokens 4096 --offline-output-tokens 256 --outstanding 96 --slots 128 "
    "--kv-tokens 200000 --host-kv-tokens 16384 --chunk-tokens 4096 --duration 45 --lead 6"
)
CPU_LOAD = (
    "--rate 1 --input-tokens 64 --output-tokens 8 --offline-input-tokens 256 "
    "--offline-output-tokens 16 --outstanding 8 --slots 16 --kv-tokens 4096 --chunk-tokens 256 "
    "--duration 8 --lead 2 --host-kv-tokens 4096"
)
# Few graphs, so that the start takes less; the same for every system. Nothing here makes one of
# them slower than another: the sampling backend is SGLang's own choice.
CUDA_ENGINE = (
    "--load-format dummy --skip-tokenizer-init --attention-backend triton "
    "--cuda-graph-bs-prefill 512 1024 2048 4096 --cuda-graph-bs-decode 1 2 4 8 16 32 64 128"
)
CPU_ENGINE = "--load-format dummy --skip-tokenizer-init"
ALONE_S = {"cuda": 30, "cpu": 4}
SYSTEMS = "online-only,conserve-v2,non-preemptive"
NUM_KERNEL_CASES = "7"
"""Drawn at random, beside five that are fixed: each compiles two kernels."""


@dataclass(frozen=True)
class Stage:
    """One command with the most it may take."""

    name: str
    argv: list[str]
    limit_s: float
    env: dict[str, str]


def engine_python(out: Path, given: Path | None) -> Path:
    """An interpreter that sees the bundle's packages first, whatever environment it is given."""
    if given is not None:
        return given.absolute()
    wrapper = out / "engine-python"
    wrapper.write_text(f'#!/bin/sh\nPYTHONPATH="{SITE}" exec "{sys.executable}" "$@"\n')
    wrapper.chmod(0o755)
    return wrapper.absolute()


def stages(args: argparse.Namespace, python: Path, out: Path) -> list[Stage]:
    """What is run, in order."""
    device = args.device
    cuda = device == "cuda"
    here = {"PYTHONPATH": str(CHECKOUT)}
    if JIT.is_dir():
        here["TVM_FFI_CACHE_DIR"] = str(JIT)
    scripts = CHECKOUT / "bench" / "gpu"

    def script(name: str, *more: str) -> list[str]:
        return [str(python), str(scripts / f"{name}.py"), "--out", str(out / f"{name}.json"), *more]

    found = [
        Stage("imports", [str(python), "-c", IMPORTS if cuda else CPU_IMPORTS], 60.0, here),
        Stage(
            "mechanisms",
            script("mechanisms", "--device", device, "--only", args.parts),
            150.0,
            here,
        ),
        Stage("engine", _benchmark("one_engine", args, python, out), BUDGET_S, here),
        Stage("compare", _benchmark("compare", args, python, out), BUDGET_S, here),
    ]
    if cuda:
        cases = str(CHECKOUT / "tests" / "engine" / "kernel_cases.py")
        found[1:1] = [
            Stage("kernels", [str(python), cases, "cuda", NUM_KERNEL_CASES], 60.0, here),
            Stage("bandwidth", script("bandwidth"), 45.0, here),
        ]
    at = [stage.name for stage in found].index("mechanisms")
    found.insert(at, Stage("run_ahead", script("run_ahead", "--device", device), 40.0, here))
    return [stage for stage in found if stage.name in args.stages.split(",")]


def _benchmark(which: str, args: argparse.Namespace, python: Path, out: Path) -> list[str]:
    cuda = args.device == "cuda"
    model = write_model(out / args.geometry, args.geometry)
    alone = which == "one_engine"
    argv = [sys.executable, "-m", "bench.gpu.one_engine" if alone else "bench.coserve_bench"]
    if alone:
        argv += ["--alone-s", str(ALONE_S[args.device])]
    systems = "conserve-v2" if alone else args.systems
    argv += f"--python {python} --model-dir {model} --out {out / which}".split()
    argv += f"--device {args.device} --systems {systems} --repeats 1 --scale {args.scale}".split()
    argv += f"--profile-dir {out / 'profiles'}".split()
    argv += (f"{CASES[args.case]} {CUDA_LOAD}" if cuda else CPU_LOAD).split()
    return [*argv, f"--engine-args={CUDA_ENGINE if cuda else CPU_ENGINE}"]


def run(stage: Stage, out: Path, limit_s: float) -> dict[str, object]:
    """Run one stage in a session of its own; when time is up all of it is ended."""
    log = out / f"{stage.name}.log"
    begun = time.monotonic()
    with log.open("wb") as output:
        process = subprocess.Popen(
            stage.argv,
            stdout=output,
            stderr=subprocess.STDOUT,
            cwd=CHECKOUT,
            env={**os.environ, **stage.env},
            start_new_session=True,
            # A shell starts background jobs with SIGINT ignored, and a child would inherit that.
            preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
        )
        try:
            status: int | str = process.wait(limit_s)
        except subprocess.TimeoutExpired:
            status = "out of time"
            os.killpg(process.pid, signal.SIGINT)  # the comparison stops its engine
            try:
                process.wait(30.0)
            except subprocess.TimeoutExpired:
                os.killpg(process.pid, signal.SIGKILL)
    report: dict[str, object] = {"status": status, "seconds": round(time.monotonic() - begun, 1)}
    for line in log.read_text(errors="replace").splitlines():
        if line.startswith("RESULTS "):
            report["results"] = json.loads(line.removeprefix("RESULTS "))
    return report


def pack(out: Path, archive: Path) -> None:
    """All results in one file, without the model's."""
    with tarfile.open(archive, "w:xz") as packed:
        for file in sorted(out.rglob("*")):
            if file.is_file() and file.stat().st_size < MAX_FILE_BYTES:
                packed.add(file, file.relative_to(out))


def options(argv: list[str] | None = None) -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--out", type=Path, required=True, help="folder for results")
    parser.add_argument("--device", choices=("cuda", "cpu"), default="cuda")
    parser.add_argument("--geometry", choices=tuple(GEOMETRIES), default="llama-3.1-8b")
    parser.add_argument("--case", choices=tuple(CASES), default="gamma")
    parser.add_argument("--scale", default="1", help="stretch of arrivals; auto costs a minute")
    parser.add_argument("--stages", default=",".join(FIRST), help="of them, in their own order")
    parser.add_argument("--parts", default="", help="of the mechanisms, separated by semicolons")
    parser.add_argument("--systems", default=SYSTEMS, help="of the comparison, in this order")
    parser.add_argument("--archive", type=Path, help="results also as one tar.xz, stage by stage")
    parser.add_argument("--engine-python", type=Path, help="instead of the bundle's packages")
    parser.add_argument("--budget", type=float, default=BUDGET_S, help="seconds for everything")
    return parser.parse_args(argv)


def main() -> int:
    """Run the stages; 0 if all of them ended well."""
    args = options()
    out = args.out.absolute()
    out.mkdir(parents=True, exist_ok=True)
    ends_at = time.monotonic() + args.budget
    reports: dict[str, object] = {"device": args.device, "geometry": args.geometry}
    well = True
    for stage in stages(args, engine_python(out, args.engine_python), out):
        left_s = ends_at - time.monotonic()
        if left_s > 5.0:
            report = run(stage, out, min(stage.limit_s, left_s))
        else:
            report = {"status": "not begun: out of time", "seconds": 0.0}
        well = well and report["status"] == 0
        reports[stage.name] = report
        (out / "stages.json").write_text(json.dumps(reports, indent=1) + "\n")
        if args.archive:
            pack(out, args.archive)
        print(f"{stage.name}: {report['status']}, {report['seconds']} s", flush=True)
    return 0 if well else 1


if __name__ == "__main__":
    sys.exit(main())
