"""Runs the systems one after another and pools their repeats.

    capacity ──► factor ──► repeat 0: online-only, A, B, ...   repeat 1: online-only, A, B, ...
                                         └─ targets                         └─ targets

Every system gets a fresh engine in every repeat. Online-only's P90 of TTFT and TBT are the targets
of the systems that follow it in the same repeat, with the same arrivals and the same neighbours on
the machine. What a run produced is written at once, so that a comparison that is cut short still
leaves results.
"""

from __future__ import annotations

import asyncio
import dataclasses
import json
import signal
import sys
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from pathlib import Path
from typing import Any

import aiohttp

from bench.coserve_bench.capacity import answered_per_s, is_overloaded, probe_requests
from bench.coserve_bench.ceiling import OfflineShape, mean_ceiling
from bench.coserve_bench.engine_run import EngineFailed, log_end, running_engine
from bench.coserve_bench.loads import load_of, mean_rate, online_trace, prompt_maker
from bench.coserve_bench.options import VIRTUAL, Options, emulated_table
from bench.coserve_bench.phases import off_phases
from bench.coserve_bench.surroundings import surroundings
from bench.coserve_bench.systems import REFERENCE, System, find_system, priority_candidates
from engine_adapter.engine_process import Device, EngineSettings
from engine_adapter.scheduling.profile import ProfileError, load_profile
from lab.emulated.clock import ENVIRONMENT as CLOCK_ENVIRONMENT
from lab.emulated.clock import VirtualClock
from lab.emulated.virtual_loop import NotOnTheClock, VirtualTimeLoop
from lab.workload.harness import Harness, Load
from lab.workload.report import write_outputs
from lab.workload.summary import (
    MS,
    SystemRun,
    Targets,
    measured_targets,
    offline_rate,
    short_figures,
    summarise,
    ttfts_s,
)
from service.percentiles import percentile

TARGET_LOAD = 0.5
PROBE_DRAIN_S = 600.0
TUNED = "sglang-priority"
TUNE_SHARE = 0.3


class Overloaded(RuntimeError):
    """The online load alone is too much; ratios would say nothing."""


class Comparison:
    """One comparison from capacity to table."""

    def __init__(self, options: Options) -> None:
        """Create the folder of results."""
        self.options = options
        self.runs: list[SystemRun] = []
        self.factor = options.scale or 1.0
        self.targets: dict[int, Targets] = {}
        self.notes: dict[str, Any] = {}
        options.out.mkdir(parents=True, exist_ok=True)
        self._prompts = prompt_maker(options)
        if options.ttft_ms and options.tbt_ms:  # nothing has to be measured first
            given = Targets(options.ttft_ms / MS, options.tbt_ms / MS)
            self.targets = dict.fromkeys(range(options.repeats), given)

    async def run(self) -> dict[str, Any]:
        """Everything; returns what ``results.json`` holds.

        Raises:
            Overloaded: If the queue of online-only grows.
        """
        systems = [find_system(name) for name in self.options.systems]
        if systems[0].name != REFERENCE and not self.targets:
            raise ValueError(f"put {REFERENCE} first in --systems, or give both targets")
        if self.options.scale is None:
            self.factor = await self._factor_for_half_load()
        systems = [
            await self._tuned(system) if system.name == TUNED else system for system in systems
        ]
        for repeat in range(self.options.repeats):
            for system in systems:
                try:
                    run = await self._measure(system, repeat)
                except EngineFailed as failed:
                    if system.name == REFERENCE:
                        raise
                    # The others are worth having all the same.
                    print(f"{system.name}, repeat {repeat}: failed: {failed}", flush=True)
                    self.notes.setdefault("failed", []).append(system.name)
                    continue
                self.runs.append(run)
                self._check_reference(run)
                write_outputs(self.results(), self.runs, self.options.out)
        return self.results()

    def results(self) -> dict[str, Any]:
        """What is known so far, in the shape of ``results.json``."""
        names = list(dict.fromkeys(run.system for run in self.runs))
        reference = [run for run in self.runs if run.system == REFERENCE]
        summaries: dict[str, Any] = {}
        for name in names:
            mine = [run for run in self.runs if run.system == name]
            figures = summarise(mine, reference, self.targets, self.options.slo_scales)
            figures["off_phases"] = off_phases(mine, self.options.on_off_s)
            summaries[name] = figures
        bound = self._ceiling(reference)
        if bound:
            for figures in summaries.values():
                rate = figures["offline_tokens_per_s"]
                figures["share_of_ceiling"] = rate / bound["tokens_per_s"]
        return {
            "systems": summaries,
            "environment": surroundings(self.options)
            | {
                "scale_factor": self.factor,
                "slo_ms": [
                    {"ttft": targets.ttft_s * MS, "tbt": targets.tbt_s * MS}
                    for targets in self.targets.values()
                ],
                "ceiling": bound,
            }
            | self.notes,
        }

    def _ceiling(self, reference: list[SystemRun]) -> dict[str, float] | None:
        """What the targets leave, once an engine has measured a latency profile."""
        options = self.options
        mine = options.profile_dir.glob(f"{options.model_dir.name}--*.json")
        profiles = sorted(mine, key=lambda path: path.stat().st_mtime)
        if not profiles or options.offline_lengths:
            return None
        try:
            model = load_profile(profiles[-1]).model()
        except ProfileError:
            return None
        shape = OfflineShape(
            options.offline_input_tokens,
            options.offline_output_tokens,
            max(1, min(options.slots, options.kv_tokens // options.offline_input_tokens)),
            options.chunk_tokens,
        )
        return mean_ceiling(model, reference, self.targets, shape)

    async def _measure(self, system: System, repeat: int, duration_share: float = 1.0) -> SystemRun:
        options = self.options
        if duration_share != 1.0:
            options = dataclasses.replace(options, duration_s=options.duration_s * duration_share)
        trace = online_trace(options, repeat, self.factor)
        self.notes["clipped"] = {
            "inputs": trace.num_inputs_clipped,
            "outputs": trace.num_outputs_clipped,
        }
        load = load_of(options, system, trace.requests, repeat)
        return await self._run(system, repeat, load)

    async def _run(self, system: System, repeat: int, load: Load) -> SystemRun:
        self._say(f"{system.name}, repeat {repeat}: {len(load.online)} online requests")
        log = self.options.out / f"engine-{system.name}-{repeat}.log"
        try:
            env = self._env(system, repeat)
            self._passes().unlink(missing_ok=True)
            async with running_engine(self._settings(), system, env, log) as engine:
                harness = Harness(engine.url, self._prompts, asyncio.get_running_loop().time)
                before = await engine.counters()
                sampler = engine.progress if self.options.on_off_s and not system.stock else None
                with turning(engine.group):
                    result = await harness.run(load, engine.tokens_computed, sampler)
                after = await engine.counters()
                run = SystemRun(
                    system.name, repeat, result, difference(before, after), engine.started_in_s
                )
                if self._passes().exists():
                    passes = json.loads(self._passes().read_text())
                    self.notes.setdefault("emulated_passes", {})[f"{system.name}/{repeat}"] = passes
        except NotOnTheClock as other:
            raise EngineFailed(f"{other}; {log}") from other
        except (aiohttp.ClientError, OSError, ExceptionGroup) as lost:
            if isinstance(lost, ExceptionGroup) and lost.split((aiohttp.ClientError, OSError))[1]:
                raise
            raise EngineFailed(
                f"it stopped answering while it was measured ({lost!r}); {log}:\n{log_end(log)}"
            ) from lost
        waits = ttfts_s(run)
        if waits:
            self._say(
                f"  TTFT P50 {percentile(waits, 0.5) * MS:.0f} ms, "
                f"P90 {percentile(waits, 0.9) * MS:.0f} ms, "
                f"offline {offline_rate(run):.0f} tokens/s"
            )
        return run

    async def _factor_for_half_load(self) -> float:
        """Measure how fast the engine answers online requests alone, all slots busy."""
        online = online_trace(self.options, 0, 1.0).requests
        if not online:
            raise ValueError("the online trace is empty")
        probe = probe_requests(online, self.options.slots)
        load = Load(probe, None, 0, duration_s=0.0, drain_s=PROBE_DRAIN_S, send_priority=False)
        run = await self._run(find_system(REFERENCE), -1, load)
        capacity_per_s = answered_per_s(run.result.online)
        factor = mean_rate(online, self.options.duration_s) / (TARGET_LOAD * capacity_per_s)
        self.notes["capacity_requests_per_s"] = capacity_per_s
        self._say(f"capacity {capacity_per_s:.2f} requests/s: arrivals stretched by {factor:.2f}")
        return factor

    async def _tuned(self, system: System) -> System:
        """The setting of stock priority scheduling with the lowest P90 TTFT in a short run."""
        settings: dict[str, dict[str, float]] = {}
        candidates = priority_candidates()
        for candidate in candidates:
            try:
                run = await self._measure(candidate, 0, TUNE_SHARE)
            except EngineFailed as failed:
                self._say(f"{candidate.name} failed: {failed}")
                continue
            settings[candidate.name] = short_figures(run)
        if not settings:
            raise EngineFailed(f"{system.name} failed with each of its settings")
        best = min(
            (candidate for candidate in candidates if candidate.name in settings),
            key=lambda candidate: settings[candidate.name]["ttft_p90_ms"],
        )
        self.notes["sglang_priority_tuning"] = {"chosen": best.name, "settings": settings}
        self._say(f"sglang-priority runs as {best.name}")
        return dataclasses.replace(best, name=system.name)

    def _check_reference(self, run: SystemRun) -> None:
        if run.system != REFERENCE:
            return
        if is_overloaded(run):
            raise Overloaded(
                "overloaded: the queue of online-only grows; thin the arrivals out with a larger "
                "--scale"
            )
        given = self.options
        measured = measured_targets([run], given.target_percentile)
        targets = Targets(
            given.ttft_ms / MS if given.ttft_ms else measured.ttft_s,
            given.tbt_ms / MS if given.tbt_ms else measured.tbt_s,
        )
        self.targets[run.repeat] = targets
        self._say(f"  targets: TTFT {targets.ttft_s * MS:.0f} ms, TBT {targets.tbt_s * MS:.0f} ms")

    def _settings(self) -> EngineSettings:
        options = self.options
        return EngineSettings(
            python=options.python,
            model_dir=options.model_dir,
            port=0,
            device=Device.CPU if emulated_table(options.device) else Device(options.device),
            dtype=options.dtype,
            kv_tokens=options.kv_tokens,
            max_running=options.slots,
            chunk_tokens=options.chunk_tokens,
            num_threads=options.threads,
            extra_args=(
                *options.engine_args,
                *(("--load-format", "dummy") if emulated_table(options.device) else ()),
            ),
        )

    def _env(self, system: System, repeat: int) -> dict[str, str]:
        env = {"COSERVE_PROFILE_DIR": str(self.options.profile_dir)}
        if self.options.host_kv_tokens is not None:
            env["COSERVE_HOST_KV_TOKENS"] = str(self.options.host_kv_tokens)
        if targets := self.targets.get(repeat):
            env["COSERVE_TTFT_MS"] = f"{targets.ttft_s * MS:.3f}"
            env["COSERVE_TBT_MS"] = f"{targets.tbt_s * MS:.3f}"
        env = {} if system.stock else env
        table = emulated_table(self.options.device)
        if table:
            env |= {"COSERVE_EMULATED": table, "COSERVE_EMULATED_REPORT": str(self._passes())}
        if self.options.clock == VIRTUAL:
            env[CLOCK_ENVIRONMENT] = str(clock_folder(self.options))
        return env

    def _passes(self) -> Path:
        return self.options.out / "emulated-passes.json"

    @staticmethod
    def _say(text: str) -> None:
        print(text, file=sys.stderr, flush=True)


def turning(engine_group: int) -> AbstractContextManager[None]:
    """While the block runs, an emulated engine's time is virtual if the loop's is."""
    loop = asyncio.get_running_loop()
    return loop.virtual(engine_group) if isinstance(loop, VirtualTimeLoop) else nullcontext()


def clock_folder(options: Options) -> Path:
    """Where the clock lies that clients share with the engine."""
    return options.out / "clock"


def run_to_end(comparison: Comparison) -> None:
    """Run it on the clock that was asked for; SIGTERM ends it as Ctrl-C does, engines first."""

    async def until_terminated() -> None:
        task = asyncio.current_task()
        assert task is not None
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, task.cancel)
        await comparison.run()

    factory = None
    if comparison.options.clock == VIRTUAL:
        clock = VirtualClock.create(clock_folder(comparison.options))
        factory = partial(VirtualTimeLoop, clock)
    with asyncio.Runner(loop_factory=factory) as runner:
        runner.run(until_terminated())


def difference(before: dict[str, Any], after: dict[str, Any]) -> dict[str, Any]:
    """Totals become what happened in between; everything else stays as it was at the end."""
    return {
        name: value - before[name]
        if isinstance(value, int | float)
        and not isinstance(value, bool)
        and isinstance(before.get(name), int | float)
        and name not in GAUGES
        else value
        for name, value in after.items()
    }


GAUGES = frozenset(
    {
        "waiting", "holding", "decoding", "prefilling", "restoring", "free_slots", "free_pages",
        "evictable_pages", "host_free_pages", "host_total_pages", "safepoint_cpu_share",
        "parked_requests", "flex_room", "tbt_share", "slowdown", "harvested_share", "pass_gap_s",
        "armed_gap_s", "page_tokens",
    }
)  # fmt: skip
