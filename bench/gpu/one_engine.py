"""One engine with random weights: its profile, chat beside a batch, then the same chat alone.

    python -m bench.gpu.one_engine --alone-s 30 [OPTIONS OF THE BENCHMARK]

Chat alone runs in the same process, with no offline work sent, so that a second start is saved and
nothing but the batch differs. Its P99s are what the shares of chat in time are measured against.
The counters hold the profile's errors by executor, predicted and measured steps, stops by layer and
what safepoints and copies cost. Each part's files are written when it has ended.
"""

from __future__ import annotations

import argparse
import asyncio
import dataclasses
import json
import sys
import time
from typing import Any

from bench.coserve_bench.compare import Comparison, difference
from bench.coserve_bench.engine_run import RunningEngine, running_engine
from bench.coserve_bench.loads import load_of, online_trace
from bench.coserve_bench.options import Options, parse_options
from bench.coserve_bench.surroundings import surroundings
from bench.coserve_bench.systems import System, find_system
from lab.workload.harness import Harness, Load
from lab.workload.report import write_outputs
from lab.workload.summary import MS, SystemRun, measured_targets, summarise

ALONE, BESIDE = "chat alone", "chat beside a batch"


class OneEngine:
    """The parts of the run.

    Args:
        options: The benchmark's; the first system is run.
        alone_s: Seconds of chat alone.
    """

    def __init__(self, options: Options, alone_s: float) -> None:
        self.options = options
        self._alone_s = alone_s
        self._made = Comparison(options)  # its settings, prompts and environment of an engine
        self._began_s = time.monotonic()
        self._told: dict[str, Any] = {}

    async def run(self) -> None:
        """All parts, in order."""
        options = self.options
        system = find_system(options.systems[0])
        env = self._made._env(system, 0)
        log = options.out / "engine.log"
        async with running_engine(self._made._settings(), system, env, log) as engine:
            counters = await engine.counters()
            self._note("started_s", round(engine.started_in_s, 1))
            self._note("profiled_after_s", round(time.monotonic() - self._began_s, 1))
            self._note("profile", counters.get("profile"))
            beside = await self._part(engine, system, BESIDE, options)
            self._write([beside], [])
            shorter = dataclasses.replace(options, duration_s=self._alone_s)
            alone = await self._part(engine, system, ALONE, shorter)
        self._write([beside, alone], [alone])

    async def _part(
        self, engine: RunningEngine, system: System, name: str, options: Options
    ) -> SystemRun:
        online = online_trace(options, 0, 1.0).requests
        load: Load = load_of(options, system, online, 0)
        if name == ALONE:
            load = dataclasses.replace(load, offline=None, lead_s=1.0)
        harness = Harness(engine.url, self._made._prompts, asyncio.get_running_loop().time)
        before = await engine.counters()
        result = await harness.run(load, engine.tokens_computed)
        after = await engine.counters()
        return SystemRun(name, 0, result, difference(before, after), engine.started_in_s)

    def _write(self, runs: list[SystemRun], reference: list[SystemRun]) -> None:
        own = reference or runs  # until chat alone has run
        targets = {0: measured_targets(own, 0.99)}
        results = {
            "systems": {
                run.system: summarise([run], own, targets, self.options.slo_scales) for run in runs
            },
            "environment": surroundings(self.options)
            | {
                "scale_factor": 1.0,
                "slo_ms": [{"ttft": targets[0].ttft_s * MS, "tbt": targets[0].tbt_s * MS}],
                "targets_of": ALONE if reference else BESIDE,
                **self._told,
            },
        }
        write_outputs(results, runs, self.options.out)

    def _note(self, name: str, value: Any) -> None:
        self._told[name] = value
        (self.options.out / "start.json").write_text(json.dumps(self._told, indent=1) + "\n")


def main(argv: list[str] | None = None) -> int:
    """Run it, then print where the time went."""
    parser = argparse.ArgumentParser(add_help=False)
    parser.add_argument("--alone-s", type=float, default=30.0)
    args, rest = parser.parse_known_args(argv)
    made = OneEngine(parse_options(rest), args.alone_s)
    asyncio.run(made.run())
    told = {name: value for name, value in made._told.items() if name != "profile"}
    print("RESULTS " + json.dumps(told))
    return 0


if __name__ == "__main__":
    sys.exit(main())
