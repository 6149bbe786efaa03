"""The engine's tests of aborts, drops, retracts and restores, on a card.

    python mechanisms.py --out FILE                all of them, four processes at a time
    python mechanisms.py --one SCRIPT ARGS...      one of them; what `--out` starts

Each script of `tests/engine` runs a real scheduler in a process of its own, with SGLang's strict
checks of its pools: a slot that is lost, freed twice or read after it was freed ends it. Answers
have to be those of an undisturbed run, but where two tokens were nearly alike
(`tests.engine.near_ties`). Beside that it is counted where the scheduler waits for the device.
"""

from __future__ import annotations

import argparse
import json
import os
import runpy
import subprocess
import sys
import tempfile
import time
import traceback
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

CHECKOUT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(CHECKOUT))

from tests.engine.engine_scripts import ENGINE_ENV  # noqa: E402

SCRIPTS = CHECKOUT / "tests" / "engine"
AT_ONCE = 4
NO_GRAPHS = {"disable_cuda_graph": True}
"""Hooks of layers, which raise the stop word at a known place, are not called in a graph."""


@dataclass(frozen=True)
class Part:
    """One script with its arguments and SGLang's."""

    name: str
    script: str
    args: tuple[str, ...]
    server_args: dict[str, Any]

    @property
    def scenarios(self) -> tuple[str, ...]:
        """Those that it has to tell of; empty where it runs all that its script has."""
        return self.args[3:] if self.script == "coserving_scenarios.py" else ()


def parts() -> list[Part]:
    """What is run, most telling first."""
    stops = "abort_prefill", "abort_decode", "drop_chunk", "drop_decode"
    moves = "restore", "shared_prefix", "recompute", "anew", "park"
    found = []
    for overlap, page in (("1", "16"), ("0", "1")):
        for name, scenarios in (("stops", stops), ("moves", moves)):
            args = (overlap, "bfloat16", page, *scenarios)
            which = f"{name}, {'overlap' if overlap == '1' else 'one after another'}"
            found.append(Part(which, "coserving_scenarios.py", args, NO_GRAPHS))
    for graphs in (False, True):
        which = "random, graphs" if graphs else "random"
        args = ("500", "1", "1", "16", "bfloat16")
        server_args = {"cuda_graph_max_bs": 8} if graphs else NO_GRAPHS
        found.append(Part(which, "coserving_random_run.py", args, server_args))
    args = ("300", "2", "1", "1", "bfloat16", "conserve_v2")
    found.append(Part("random, conserve_v2", "coserving_random_run.py", args, {}))
    found.append(Part("debt", "coserving_debt.py", ("1",), NO_GRAPHS))
    return found


def environment(part: Part, device: str) -> dict[str, str]:
    """What its process is started with: set before SGLang is imported, as for the tests."""
    return {
        **os.environ,
        **{
            name: value
            for name, value in ENGINE_ENV.items()
            if device == "cpu" or "CPU" not in name
        },
        "COSERVE_RIG_DEVICE": device,
        "COSERVE_RIG_ARGS": json.dumps(part.server_args if device == "cuda" else {}),
        "TMPDIR": tempfile.gettempdir(),
    }


def run(part: Part, device: str, log: Path, limit_s: float) -> dict[str, Any]:
    """One part in a process of its own."""
    argv = [sys.executable, __file__, "--one", str(SCRIPTS / part.script), *part.args]
    begun_s = time.monotonic()
    with log.open("wb") as output:
        try:
            code: int | str = subprocess.run(
                argv,
                stdout=output,
                stderr=subprocess.STDOUT,
                env=environment(part, device),
                timeout=max(1.0, limit_s),
                check=False,
            ).returncode
        except subprocess.TimeoutExpired:
            code = "out of time"
    found: dict[str, Any] = {"ended": code, "seconds": round(time.monotonic() - begun_s, 1)}
    for line in log.read_text(errors="replace").splitlines():
        for word in ("RESULTS", "SYNCS"):
            if line.startswith(f"{word} "):
                found[word.lower()] = json.loads(line.removeprefix(f"{word} "))
    return found


def failures(found: dict[str, dict[str, Any]], asked: Sequence[Part]) -> list[str]:
    """Parts that ended badly or told nothing; scenarios of others that failed or did not run."""
    bad = [name for name, told in found.items() if told["ended"] != 0 or not told.get("results")]
    bad += [
        f"{part.name}: {scenario} did not run"
        for part in asked
        for scenario in part.scenarios
        if scenario not in found.get(part.name, {}).get("results", {})
    ]
    for name, told in found.items():
        results = told.get("results", {})
        bad += [
            f"{name}: {scenario}"
            for scenario, one in results.items()
            if isinstance(one, dict) and one.get("error")
        ]
    return bad


def one(argv: list[str]) -> None:
    """In the part's process; ends it, whatever the scheduler still has running."""
    import torch

    from bench.gpu.syncs import counted

    sys.argv = argv
    code = 0
    try:
        if os.environ["COSERVE_RIG_DEVICE"] == "cuda":
            with counted(torch) as found:
                runpy.run_path(argv[0], run_name="__main__")
            print("SYNCS " + json.dumps(dict(found.most_common(40))))
        else:
            runpy.run_path(argv[0], run_name="__main__")
    except BaseException:  # noqa: BLE001 - the log has it
        traceback.print_exc()
        code = 1
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


def main() -> int:
    """Run the parts; 1 if something failed."""
    if sys.argv[1:2] == ["--one"]:
        one(sys.argv[2:])
    parser = argparse.ArgumentParser()
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--device", choices=("cuda", "cpu"), default="cuda")
    parser.add_argument("--limit", type=float, default=140.0, help="seconds for all of them")
    parser.add_argument("--only", default="", help="parts by name, separated by semicolons")
    args = parser.parse_args()
    ends_s = time.monotonic() + args.limit
    chosen = [part for part in parts() if not args.only or part.name in args.only.split(";")]
    found: dict[str, dict[str, Any]] = {}

    def do(number: int) -> None:
        part = chosen[number]
        log = args.out.with_name(f"mechanisms-{number}.log")
        found[part.name] = run(part, args.device, log, ends_s - time.monotonic())
        args.out.write_text(json.dumps(found, indent=1) + "\n")

    with ThreadPoolExecutor(AT_ONCE) as pool:
        list(pool.map(do, range(len(chosen))))
    bad = failures(found, chosen)
    print("RESULTS " + json.dumps({"parts": len(found), "failed": bad}))
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
