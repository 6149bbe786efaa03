"""What can be asked of the benchmark."""

from __future__ import annotations

import argparse
from dataclasses import dataclass
from pathlib import Path

from bench.coserve_bench.systems import DEFAULT_SYSTEMS, at_levels
from engine_adapter.gpu_tables.gpu_table import load_gpu_table
from engine_adapter.host_cpu import matmul_dtype
from lab.emulated.model_dir import write_model_dir
from lab.workload.files import find_workload

SLO_SCALES = (1.0, 1.25, 1.5, 2.0)


@dataclass(frozen=True, slots=True)
class Options:
    """One comparison; see :func:`parse_options` for the meaning of each."""

    python: Path
    model_dir: Path
    out: Path
    device: str
    clock: str
    dtype: str | None
    systems: tuple[str, ...]
    repeats: int
    duration_s: float
    lead_s: float
    trace: Path | None
    trace_start_s: float
    rate_per_s: float
    cv: float
    on_off_s: tuple[float, ...]
    input_tokens: int
    output_tokens: int
    offline_lengths: Path | None
    offline_input_tokens: int
    offline_output_tokens: int
    outstanding: int
    scale: float | None
    kv_tokens: int
    slots: int
    chunk_tokens: int
    threads: int
    ttft_ms: float | None
    tbt_ms: float | None
    target_percentile: float
    slo_scales: tuple[float, ...]
    profile_dir: Path
    host_kv_tokens: int | None
    seed: int
    engine_args: tuple[str, ...]


def parse_options(argv: list[str] | None = None) -> Options:
    """Read the command line."""
    parser = argparse.ArgumentParser(
        prog="coserve bench coserve",
        description="Online requests beside a full queue of offline rows, engine after engine.",
        formatter_class=argparse.ArgumentDefaultsHelpFormatter,
    )
    add = parser.add_argument
    add("--python", type=Path, default=Path(".venv-engine/bin/python"), help="engine interpreter")
    add("--model-dir", type=Path, default=Path(".coserve/models/SmolLM2-135M-Instruct"))
    add("--out", type=Path, default=Path(".coserve/bench"), help="folder for results")
    add(
        "--device",
        default="cpu",
        help="cpu, cuda, or emulated:NAME for the GPU of a table (docs/gpu-tables.md)",
    )
    add(
        "--clock",
        choices=CLOCKS,
        default=HOST,
        help="of an emulated device: host, or virtual, which skips the time nobody works in",
    )
    add("--dtype", help="weights and KV; what this host multiplies fastest if left out")
    add("--systems", default=",".join(DEFAULT_SYSTEMS), help="comma-separated, in running order")
    add("--level", default="", help="of conserve-v2, comma-separated; the engine's own if empty")
    add("--repeats", type=int, default=2, help="every system runs once per repeat, interleaved")
    add("--duration", type=float, default=100.0, help="seconds of each window")
    add("--lead", type=float, default=10.0, help="seconds of offline load before the window")
    add(
        "--online",
        help="trace CSV (arrival_s,input_tokens,output_tokens), or the name of one "
        "in ../shared/workloads/online beside the checkout",
    )
    add("--online-start", type=float, default=0.0, help="second of the trace to start at")
    add("--rate", type=float, default=0.35, help="online requests per second without a trace")
    add("--cv", type=float, default=1.0, help="variation of the gaps; 1 is Poisson")
    add("--on-off", default="", help="phase lengths in seconds, on first: 30,30,30")
    add("--input-tokens", type=int, default=256)
    add("--output-tokens", type=int, default=32)
    add(
        "--offline-lengths",
        help="CSV (input_tokens,output_tokens), or the name of one in ../shared/workloads/lengths",
    )
    add("--offline-input-tokens", type=int, default=1024)
    add("--offline-output-tokens", type=int, default=64)
    add("--outstanding", type=int, default=32, help="offline rows always outstanding")
    add("--scale", default="auto", help="stretch of arrivals, or auto: online-only at 50 %% load")
    add("--kv-tokens", type=int, default=16384)
    add("--slots", type=int, default=24)
    add("--chunk-tokens", type=int, default=512)
    add("--threads", type=int, default=1, help="OpenMP threads of a CPU engine")
    add("--ttft-ms", type=float, help="TTFT target; online-only's measured P90 by default")
    add("--tbt-ms", type=float, help="TBT target; online-only's measured P90 by default")
    add(
        "--target-percentile",
        type=float,
        default=0.9,
        help="percentile of online-only that the targets are; 0.99 is the papers' definition",
    )
    add("--slo-scale", default=",".join(map(str, SLO_SCALES)), help="attainment is given for each")
    add("--profile-dir", type=Path, help="where profiles are kept; <out>/profiles by default")
    add("--host-kv-tokens", type=int, help="size of the host checkpoint pool")
    add("--seed", type=int, default=1)
    add("--engine-args", default="", help="further engine arguments, separated by spaces")
    args = parser.parse_args(argv)
    _check(args)
    return Options(
        python=args.python.absolute(),
        model_dir=_model_dir(args),
        out=args.out.absolute(),
        device=args.device,
        clock=args.clock,
        # Said here and not left to the engine, so that every result names it.
        dtype=args.dtype or _dtype(args.device),
        systems=at_levels(args.systems.split(","), [one for one in args.level.split(",") if one]),
        repeats=args.repeats,
        duration_s=args.duration,
        lead_s=args.lead,
        trace=find_workload(args.online, "online"),
        trace_start_s=args.online_start,
        rate_per_s=args.rate,
        cv=args.cv,
        on_off_s=tuple(float(part) for part in args.on_off.split(",") if part),
        input_tokens=args.input_tokens,
        output_tokens=args.output_tokens,
        offline_lengths=find_workload(args.offline_lengths, "lengths"),
        offline_input_tokens=args.offline_input_tokens,
        offline_output_tokens=args.offline_output_tokens,
        outstanding=args.outstanding,
        scale=None if args.scale == "auto" else float(args.scale),
        kv_tokens=args.kv_tokens,
        slots=args.slots,
        chunk_tokens=args.chunk_tokens,
        threads=args.threads,
        ttft_ms=args.ttft_ms,
        tbt_ms=args.tbt_ms,
        target_percentile=args.target_percentile,
        slo_scales=tuple(float(part) for part in args.slo_scale.split(",")),
        profile_dir=(args.profile_dir or args.out / "profiles").absolute(),
        host_kv_tokens=args.host_kv_tokens,
        seed=args.seed,
        engine_args=tuple(args.engine_args.split()),
    )


EMULATED = "emulated:"
CLOCKS = HOST, VIRTUAL = "host", "virtual"


def emulated_table(device: str) -> str:
    """The table's name of an emulated device; empty for a real one."""
    return device.removeprefix(EMULATED) if device.startswith(EMULATED) else ""


def _dtype(device: str) -> str | None:
    if emulated_table(device):
        return "bfloat16"
    return matmul_dtype() if device == "cpu" else None


def _model_dir(args: argparse.Namespace) -> Path:
    given: Path = args.model_dir.absolute()
    table = emulated_table(args.device)
    if not table:
        return given
    return write_model_dir(load_gpu_table(table), given, args.out.absolute() / "models")


_POSITIVE = (
    "repeats", "duration", "rate", "input_tokens", "output_tokens", "offline_input_tokens",
    "offline_output_tokens", "outstanding", "kv_tokens", "slots", "chunk_tokens",
)  # fmt: skip


def _check(args: argparse.Namespace) -> None:
    """Refuse what nothing can be measured with.

    Raises:
        ValueError: One sentence that names the option.
    """
    if args.device not in ("cpu", "cuda") and not emulated_table(args.device):
        raise ValueError(f"--device is cpu, cuda or {EMULATED}NAME, not {args.device!r}")
    if args.clock != HOST and not emulated_table(args.device):
        raise ValueError(f"--clock {args.clock} is for emulated devices, not for {args.device}")
    for name in _POSITIVE:
        if getattr(args, name) <= 0:
            raise ValueError(f"--{name.replace('_', '-')} has to be above 0")
    if args.scale != "auto" and not _positive(args.scale):
        raise ValueError("--scale is a number above 0, or auto")


def _positive(text: str) -> bool:
    try:
        return float(text) > 0.0
    except ValueError:
        return False
