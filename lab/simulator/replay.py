"""One run of one policy: online requests beside a full queue of offline requests.

The same run as the benchmark's against a real engine: online requests arrive at their instants
whatever happened before; a constant number of offline requests is outstanding, from ``lead_s``
before the window until the last online request is answered.
"""

from __future__ import annotations

import gc
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from engine_adapter.scheduling.driver import Driver
from engine_adapter.scheduling.policies.base import SchedulingPolicy
from engine_adapter.scheduling.request import Request, RequestClass
from engine_adapter.scheduling.targets import Slo
from lab.prediction.registry import simulated_predictor
from lab.simulator.device import SimulatedDevice
from lab.simulator.engine import MemoryEngine
from lab.simulator.run import run
from lab.simulator.shape import Track
from lab.simulator.times import Noise
from lab.workload.harness import NOT_IN_TIME, RunResult
from lab.workload.lengths import Lengths
from lab.workload.records import RequestRecord
from lab.workload.summary import SystemRun
from lab.workload.traces import TraceRequest

SLICES = 50
"""Progress is said so often a window."""

Progress = Callable[[float], None]


@dataclass(frozen=True, slots=True)
class SharedPrefixes:
    """Prompts that begin alike; none do without groups.

    Attributes:
        tokens: Tokens that the prompts of a group share.
        groups: Groups, taken in turn; 0 shares nothing.
    """

    tokens: int = 0
    groups: int = 0

    def of(self, side: str, number: int, input_tokens: int) -> tuple[str, int] | None:
        """The group of the request of that number; None if its prompt is too short."""
        if not self.groups or input_tokens <= self.tokens:
            return None
        return f"{side}-{number % self.groups}", self.tokens


@dataclass(frozen=True, slots=True)
class SimulatedLoad:
    """What arrives; seconds.

    Attributes:
        online: Online requests, arrivals counted from the opening of the window.
        offline: Lengths of offline requests, as many as are needed; None sends none.
        num_outstanding: Offline requests kept outstanding.
        duration_s: Length of the window.
        lead_s: Time the offline queue runs before the window opens.
        drain_s: Time online requests may take after the window.
        online_prefixes: What online prompts share.
        offline_prefixes: What offline prompts share.
        output_bound: ``max_tokens`` of every request whose answer is no longer.
        predictor: Who expects the lengths of answers.
        batch_windows_s: Of each batch, the time each of its requests may take; all batches have an
            equal part of those outstanding.
    """

    online: Sequence[TraceRequest]
    offline: Iterator[Lengths] | None
    num_outstanding: int
    duration_s: float
    lead_s: float = 0.0
    drain_s: float = 60.0
    online_prefixes: SharedPrefixes = SharedPrefixes()
    offline_prefixes: SharedPrefixes = SharedPrefixes()
    output_bound: int = 2048
    predictor: str = "history"
    batch_windows_s: tuple[float, ...] = (math.inf,)


def replay(
    device: SimulatedDevice,
    policy: SchedulingPolicy,
    load: SimulatedLoad,
    slo: Slo,
    *,
    noise: Noise | None = None,
    repeat: int = 0,
    progress: Progress | None = None,
) -> SystemRun:
    """Run the policy over the load.

    Args:
        device: What is simulated.
        policy: Decides the steps; a fresh one, since it remembers.
        load: What arrives.
        slo: Targets shown to the policy.
        noise: Factors on step times.
        repeat: Number of the run, kept with its result.
        progress: Told the simulated seconds since it was told last.

    Raises:
        Stuck: If the policy lets no request run although some are live.
        PlanRejected: If it breaks a rule.
    """
    replayed = Replay(device, policy, load, slo, noise)
    # A run makes millions of objects and no cycles: looking for some took a third of its time.
    collects = gc.isenabled()
    gc.disable()
    try:
        return replayed.run(repeat, progress or (lambda _: None))
    finally:
        if collects:
            gc.enable()


class Replay:
    """One engine under one policy, with its offline queue."""

    def __init__(
        self,
        device: SimulatedDevice,
        policy: SchedulingPolicy,
        load: SimulatedLoad,
        slo: Slo,
        noise: Noise | None,
    ) -> None:
        self._device = device
        self._load = load
        self._driver = Driver(policy)
        self._num_offline = 0
        self._open = 0
        self._answers: dict[str, int] = {}
        self.engine = MemoryEngine(
            device.shape,
            slo,
            device.times,
            self._driver.arrival,
            on_finish=self._finished,
            noise=noise,
            predictor=simulated_predictor(load.predictor, self._answers.__getitem__),
        )
        self.engine.now_s = -load.lead_s  # instant 0 is the opening of the window
        for number, request in enumerate(load.online):
            self.arrive(number, request)
        for number in range(load.num_outstanding if load.offline is not None else 0):
            self._feed(number % len(load.batch_windows_s))

    def arrive(self, number: int, traced: TraceRequest) -> None:
        """An online request is on its way; its number is its name."""
        request = Request(
            f"online-{number}",
            RequestClass.ONLINE,
            traced.input_tokens,
            traced.input_tokens,
            arrival_at_s=traced.arrival_s,
        )
        self._open += 1
        shared = self._load.online_prefixes.of("online", number, traced.input_tokens)
        self.submit(request, shared, traced.output_tokens)

    def advance(self, until_s: float) -> None:
        """Step to an instant; an engine with nothing to do waits for it."""
        engine = self.engine
        if engine.roster.requests or engine.next_arrival_s is not None:
            run(engine, self._driver, until_s=until_s)
        engine.now_s = max(engine.now_s, until_s)

    def open(self) -> None:
        """The window opens: what the engine has counted so far is not part of it."""
        self._opened = self._counters()

    def close(self) -> None:
        self._closed = self._counters()

    def run(self, repeat: int, progress: Progress) -> SystemRun:
        self._until(0.0, progress)
        self.open()
        self._until(self._load.duration_s, progress)
        self.close()
        self.drain()
        return self.result(repeat)

    def drain(self) -> None:
        """Online requests that are under way may end."""
        load, engine = self._load, self.engine
        end_s = load.duration_s + load.drain_s
        while self._open and engine.now_s < end_s:
            before_s = engine.now_s
            run(engine, self._driver, until_s=min(end_s, before_s + load.drain_s / SLICES))
            if engine.now_s == before_s:
                break

    def result(self, repeat: int) -> SystemRun:
        """What the run was, as the benchmark says it."""
        grown = {name: value - self._opened[name] for name, value in self._closed.items()}
        tracks = self.engine.tracks.values()
        result = RunResult(
            online=[self._record(track) for track in tracks if track.request.is_online],
            offline=[self._record(track) for track in tracks if not track.request.is_online],
            duration_s=self._load.duration_s,
            reading=int(grown["offline_tokens"]),
        )
        result.online.sort(key=lambda record: record.scheduled_s)
        counters: dict[str, Any] = {
            **grown,
            "offline_work_s": self._work_s(result, grown),
            "step_times": self._driver.step_log.to_plain(),
        }
        return SystemRun(self._driver.policy.name.replace("_", "-"), repeat, result, counters)

    def _until(self, until_s: float, progress: Progress) -> None:
        """Step to an instant; an engine with nothing to do waits for it."""
        engine = self.engine
        while engine.now_s < until_s:
            before_s = engine.now_s
            target_s = min(until_s, before_s + self._load.duration_s / SLICES)
            run(engine, self._driver, until_s=target_s)
            if engine.now_s < target_s:
                engine.now_s = target_s
            progress(engine.now_s - before_s)

    def _feed(self, batch: int) -> None:
        """One more offline request of a batch."""
        assert self._load.offline is not None
        lengths = next(self._load.offline, None)
        if lengths is None:
            return
        input_tokens, output_tokens = lengths
        number = self._num_offline
        self._num_offline += 1
        request = Request(
            f"offline-{number}",
            RequestClass.OFFLINE,
            input_tokens,
            input_tokens,
            arrival_at_s=self.engine.now_s,
            deadline_at_s=self.engine.now_s + self._load.batch_windows_s[batch],
            batch_id=str(batch),
        )
        shared = self._load.offline_prefixes.of("offline", number, input_tokens)
        self.submit(request, shared, output_tokens)

    def submit(self, request: Request, shared: tuple[str, int] | None, answer_tokens: int) -> None:
        """A request arrives; ``shared`` is what its prompt begins with, see SharedPrefixes."""
        self._answers[request.rid] = answer_tokens
        context = self._device.max_context - request.prompt_tokens
        request.max_output_tokens = max(answer_tokens, min(self._load.output_bound, context))
        self.engine.submit(request, shared, answer_tokens=answer_tokens)

    def _finished(self, request: Request) -> None:
        if request.is_online:
            self._open -= 1
        elif self._load.offline is not None:
            self._feed(int(request.batch_id))

    def _counters(self) -> dict[str, float]:
        engine = self.engine
        return {
            "steps": engine.num_steps,
            "offline_tokens": engine.offline_tokens,
            "offline_prompt_tokens": engine.offline_prompt_tokens,
            "recomputed_tokens": engine.recomputed_tokens,
            "restored_tokens": engine.restored_tokens,
            "stops": engine.num_stops,
            "retracts": engine.num_retracts,
            "cuts": engine.num_cuts,
            "parks": engine.num_parks,
            "busy_s": engine.busy_s,
        }

    def _work_s(self, result: RunResult, grown: dict[str, float]) -> float:
        """Harvested tokens at what they cost the device at its best."""
        if not result.offline:
            return 0.0
        num = len(result.offline)
        inputs = sum(record.input_tokens for record in result.offline) // num
        tracks = self.engine.tracks.values()
        outputs = sum(t.answer_tokens for t in tracks if not t.request.is_online) // num
        prompt_tokens = grown["offline_prompt_tokens"]
        return prompt_tokens * self._device.prompt_token_s(inputs) + (
            grown["offline_tokens"] - prompt_tokens
        ) * self._device.output_token_s(inputs + outputs // 2)

    def _record(self, track: Track) -> RequestRecord:
        request, at_s = track.request, track.arrived_at_s
        done = request.output_tokens >= track.answer_tokens
        failed = request.is_online and not done
        return RequestRecord(
            request.rid,
            request.is_online,
            request.prompt_tokens,
            scheduled_s=at_s,
            sent_s=at_s,
            token_times_s=track.times,
            cached_tokens=max(0, track.cached),
            retractions=track.retractions,
            error=NOT_IN_TIME if failed else "",
            given_up_s=self.engine.now_s if failed else None,
            done=done,
        )
