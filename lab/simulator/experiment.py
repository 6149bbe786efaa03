"""A comparison of policies on a simulated device, written down as the benchmark writes its own."""

from __future__ import annotations

import platform
from collections.abc import Callable, Iterator
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from engine_adapter.host_cpu import cpu_name
from engine_adapter.scheduling.derive import default_slo
from engine_adapter.scheduling.latency import LatencyModel
from engine_adapter.scheduling.policies.base import SchedulingPolicy
from engine_adapter.scheduling.policies.registry import create_policy
from engine_adapter.scheduling.policies.settings import Level, PolicySettings
from engine_adapter.scheduling.targets import Slo
from lab.policies.registry import TWO_POOLS
from lab.simulator.device import SimulatedDevice, engine_for, find_device
from lab.simulator.fleet import replay_fleet
from lab.simulator.options import REFERENCE, Options
from lab.simulator.replay import SimulatedLoad, replay
from lab.simulator.times import Noise
from lab.simulator.two_pools import TwoPools
from lab.workload.arrivals import gamma_arrivals, on_off_arrivals
from lab.workload.lengths import Lengths, fixed_lengths, read_lengths, sampled_lengths
from lab.workload.metrics import queue_grows
from lab.workload.report import write_outputs
from lab.workload.summary import MS, SystemRun, Targets, measured_targets, summarise, ttfts_s
from lab.workload.traces import (
    TraceRequest,
    check_context,
    clip_lengths,
    read_trace,
    stretch,
    window,
)

Progress = Callable[[str, float], None]
SEEDS_APART = 1000
"""Seeds of one repeat; the next repeat's begin after them."""


class OverloadedError(ValueError):
    """The device does not keep up with the online requests alone."""


class Experiment:
    """Every policy over the same arrivals, repeat by repeat.

    Args:
        options: What is compared.

    Attributes:
        device: What is simulated.
        runs: Finished runs.
        targets: By repeat.
    """

    def __init__(self, options: Options) -> None:
        """Read the device, the trace and the lengths.

        Raises:
            ValueError: If one of them cannot be used.
        """
        self.options = options
        self.device: SimulatedDevice = find_device(options.device, options.size)
        self.runs: list[SystemRun] = []
        self.targets: dict[int, Targets] = {}
        self._clipped = {"inputs": 0, "outputs": 0}
        self._windows = self._read_trace(options.trace) if options.trace else []
        self._lengths = self._read_lengths(options.offline_lengths)
        longest = options.input_tokens + options.output_tokens
        if not self._windows and longest > self.device.max_context:
            raise ValueError(
                f"--input-tokens and --output-tokens make {longest} tokens, more than the "
                f"{self.device.max_context} of the engine's context"
            )

    @property
    def simulated_s(self) -> float:
        """Seconds that all runs together simulate."""
        options = self.options
        each = options.lead_s + options.duration_s
        return each * options.repeats * len(options.policies)

    def run(self, progress: Progress) -> dict[str, Any]:
        """Everything; returns what ``results.json`` holds.

        Args:
            progress: Told the policy and the simulated seconds since it was told last.

        Raises:
            OverloadedError: If the queue of online-only grows.
        """
        for repeat in range(self.options.repeats):
            for name in self.options.policies:
                done = self._run(name, repeat, progress)
                if ":" in name:
                    done = replace(done, system=f"{done.system}:{name.partition(':')[2]}")
                self.runs.append(done)
                if name == REFERENCE:
                    self._take_targets(done)
        results = self.results()
        self.options.out.mkdir(parents=True, exist_ok=True)
        write_outputs(results, self.runs, self.options.out)
        return results

    def results(self) -> dict[str, Any]:
        """What is known so far, in the shape of ``results.json``."""
        reference = [run for run in self.runs if run.system == self.runs[0].system]
        systems = {}
        for name in dict.fromkeys(run.system for run in self.runs):
            mine = [run for run in self.runs if run.system == name]
            systems[name] = summarise(mine, reference, self.targets, self.options.slo_scales)
        return {
            "systems": systems,
            "environment": {
                "simulated": self.device.about,
                "cpu": cpu_name(),
                "python": platform.python_version(),
                "options": _plain(self.options),
                "scale_factor": self.options.scale,
                "slo_ms": [
                    {"ttft": targets.ttft_s * MS, "tbt": targets.tbt_s * MS}
                    for targets in self.targets.values()
                ],
                "clipped": self._clipped,
            },
        }

    def _run(self, name: str, repeat: int, progress: Progress) -> SystemRun:
        options, device = self.options, engine_for(self.device, name)
        seed = options.seed + SEEDS_APART * repeat
        targets = self.targets.get(repeat)
        slo = Slo(targets.ttft_s, targets.tbt_s) if targets else default_slo(device.model)
        load = SimulatedLoad(
            online=self._online(seed, repeat),
            offline=None if name == REFERENCE else self._offline(seed),
            num_outstanding=options.outstanding,
            duration_s=options.duration_s,
            lead_s=options.lead_s,
            online_prefixes=options.online_prefixes,
            offline_prefixes=options.offline_prefixes,
            predictor=options.predictor,
        )
        if name in TWO_POOLS:
            return TwoPools(
                device,
                lambda: policy_of(name, device.model),
                load,
                slo,
                engines=options.fleet,
                make_noise=lambda n: Noise(
                    options.noise, options.noise_memory, f"{seed}/{name}/{n}"
                ),
            ).replay(repeat, lambda seconds: progress(name, seconds))
        if options.fleet > 1:
            return replay_fleet(
                device,
                lambda: policy_of(name, device.model),
                load,
                slo,
                engines=options.fleet,
                router=options.router,
                make_noise=lambda n: Noise(
                    options.noise, options.noise_memory, f"{seed}/{name}/{n}"
                ),
                repeat=repeat,
                progress=lambda seconds: progress(name, seconds),
            )
        noise = Noise(options.noise, options.noise_memory, f"{seed}/{name}")
        return replay(
            device,
            policy_of(name, device.model),
            load,
            slo,
            noise=noise,
            repeat=repeat,
            progress=lambda seconds: progress(name, seconds),
        )

    def _take_targets(self, run: SystemRun) -> None:
        options = self.options
        if not run.result.online:
            raise ValueError("no online request arrives: raise --rate or --duration")
        waiting = [record for record in run.result.online if not record.token_times_s]
        if queue_grows(ttfts_s(run)) or len(waiting) > len(run.result.online) // 10:
            raise OverloadedError(
                f"overloaded: the queue of {REFERENCE} grows; thin the arrivals out with a larger "
                "--scale or a lower --rate"
            )
        measured = measured_targets([run], options.target_percentile)
        self.targets[run.repeat] = Targets(
            options.ttft_ms / MS if options.ttft_ms else measured.ttft_s,
            options.tbt_ms / MS if options.tbt_ms else measured.tbt_s,
        )

    def _online(self, seed: int, repeat: int) -> list[TraceRequest]:
        options = self.options
        if self._windows:
            return self._windows[repeat % len(self._windows)]
        rate_per_s = options.rate_per_s / options.scale
        if options.on_off_s:
            arrivals = on_off_arrivals(rate_per_s, options.on_off_s, seed, options.cv)
        else:
            arrivals = gamma_arrivals(rate_per_s, options.cv, options.duration_s, seed)
        lengths = (options.input_tokens, options.output_tokens)
        return [TraceRequest(at_s, *lengths) for at_s in arrivals if at_s < options.duration_s]

    def _offline(self, seed: int) -> Iterator[Lengths]:
        if len(self._lengths) == 1:
            return fixed_lengths(*self._lengths[0])
        return sampled_lengths(self._lengths, seed)

    def _read_trace(self, path: Path) -> list[list[TraceRequest]]:
        """The window of each repeat; one for all of them unless they are spread."""
        options, longest = self.options, self.device.max_context
        requests = read_trace(path)
        if options.clip:
            clipped = clip_lengths(requests, longest - longest // 4, longest // 4)
            requests = clipped.requests
            self._clipped = {
                "inputs": clipped.num_inputs_clipped,
                "outputs": clipped.num_outputs_clipped,
            }
        else:
            check_context(path, requests, longest)
        first_s, length_s = options.trace_start_s, options.duration_s / options.scale
        begins = [first_s]
        if options.spread and options.repeats > 1:
            room_s = max(0.0, requests[-1].arrival_s - first_s - length_s)
            number = options.repeats
            begins = [first_s + room_s * i / (number - 1) for i in range(number)]
        cuts = [window(requests, begin_s, length_s) for begin_s in begins]
        return [stretch(cut, options.scale) for cut in cuts]

    def _read_lengths(self, path: Path | None) -> list[Lengths]:
        options, longest = self.options, self.device.max_context
        pairs = [(options.offline_input_tokens, options.offline_output_tokens)]
        if path is not None:
            pairs = read_lengths(path)
        if options.clip:
            pairs = [(min(i, longest - longest // 4), min(o, longest // 4)) for i, o in pairs]
        for number, (inputs, outputs) in enumerate(pairs, start=2):
            if inputs + outputs > longest:
                where = f"{path}:{number}: " if path else "offline requests: "
                raise ValueError(
                    f"{where}{inputs} + {outputs} tokens are more than the {longest} of the "
                    "engine's context; --clip shortens them"
                )
        return pairs


def policy_of(name: str, model: LatencyModel) -> SchedulingPolicy:
    """A policy by its name, which may say its level: `conserve_v2:balanced`."""
    policy, _, level = name.partition(":")
    return create_policy(policy, model, PolicySettings(level=Level(level or Level.MAX)))


def _plain(options: Options) -> dict[str, Any]:
    """Options as JSON holds them; files by name, since results name no machine."""
    bare = replace(options, out=Path(options.out.name))
    return {
        name: value.name if isinstance(value, Path) else value
        for name, value in asdict(bare).items()
    }
