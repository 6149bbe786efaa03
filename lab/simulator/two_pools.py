"""Two pools of engines: one computes prompts, the other answers (DistServe, OSDI 2024, section 4).

    arrival -> prefill engine -> first token -> KV over the link -> decode engine -> last token

A request goes to the engine with the least to do, in either pool. Its KV stays where it was
computed until a decode engine has memory and fetches it, as DistServe's decode instances pull
(section 4.3). The host pool of the decode engine stands for that memory of the prefill engine, so
it is as large; a request that does not fit it is handed over once others have been fetched. A
prefill engine is not held up by those that wait there: the paper's would be, when memory is short.
"""

from __future__ import annotations

import gc
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field, replace

from engine_adapter.scheduling.policies.base import SchedulingPolicy
from engine_adapter.scheduling.request import Phase, Request, RequestClass, pages_for
from engine_adapter.scheduling.targets import Slo
from lab.simulator.device import SimulatedDevice
from lab.simulator.fleet import merged
from lab.simulator.replay import Progress, Replay, SimulatedLoad
from lab.simulator.times import Noise
from lab.workload.harness import NOT_IN_TIME
from lab.workload.lengths import Lengths
from lab.workload.records import RequestRecord
from lab.workload.summary import SystemRun

TICK_S = 0.1


class PoolEngine(Replay):
    """One engine; nothing arrives by itself, and what it has finished is collected."""

    ended: list[Request]
    given_tokens = 0

    def _finished(self, request: Request) -> None:
        self.ended.append(request)

    def advance(self, until_s: float) -> None:
        """As every engine; forgets what had ended and what had been given to it before."""
        self.ended, self.given_tokens = [], 0
        super().advance(until_s)

    @property
    def tokens(self) -> int:
        """Tokens that its requests hold or still have to compute of their prompts."""
        requests = self.engine.roster.requests.values()
        held = sum(max(request.remaining_tokens, request.computed_tokens) for request in requests)
        return held + self.given_tokens

    def give(self, request: Request, answer_tokens: int) -> None:
        """A request is on its way to the engine."""
        self.given_tokens += request.fill_tokens
        self.submit(request, None, answer_tokens)


@dataclass(slots=True)
class Journey:
    """A request on its way through both pools."""

    request: Request
    answer_tokens: int
    first: PoolEngine
    second: PoolEngine | None = None
    times: list[float] = field(default_factory=list)


class TwoPools:
    """The engines and the requests between them.

    Attributes:
        journeys: Every request that arrived, by id.
    """

    def __init__(
        self,
        device: SimulatedDevice,
        make_policy: Callable[[], SchedulingPolicy],
        load: SimulatedLoad,
        slo: Slo,
        *,
        engines: int = 2,
        make_noise: Callable[[int], Noise] | None = None,
    ) -> None:
        """Every engine is idle; offline requests are outstanding from the beginning.

        Args:
            device: What every engine runs on.
            make_policy: A fresh policy for each engine.
            load: What arrives.
            slo: Targets shown to the policies.
            engines: How many; half of them, rounded up, compute prompts.
            make_noise: Factors on step times, by engine.

        Raises:
            ValueError: If there are less than two engines.
        """
        if engines < 2:
            raise ValueError(f"distserve has two pools: there are {engines} engines, not 2 or more")
        noises = [make_noise(number) if make_noise else None for number in range(engines)]
        empty = replace(load, online=(), offline=None)
        members = [PoolEngine(device, make_policy(), empty, slo, noise) for noise in noises]
        num_prefill = (engines + 1) // 2
        self._prefill, self._decode = members[:num_prefill], members[num_prefill:]
        self._load = load
        self._place = self._num_offline = 0
        self.journeys: dict[str, Journey] = {}
        self._handed: deque[Journey] = deque()  # computed, and no decode engine has room to note it
        for number in range(load.num_outstanding if load.offline is not None else 0):
            self._feed(number % len(load.batch_windows_s), -load.lead_s)

    def replay(self, repeat: int = 0, progress: Progress = lambda _: None) -> SystemRun:
        """The whole load; online requests that are under way at its end may end."""
        load, at_s = self._load, -self._load.lead_s
        collects = gc.isenabled()
        gc.disable()
        try:
            for end_s in (0.0, load.duration_s):
                while at_s < end_s:
                    before_s, at_s = at_s, min(end_s, at_s + TICK_S)
                    self.advance(at_s)
                    progress(at_s - before_s)
                for engine in self.engines:
                    (engine.close if end_s else engine.open)()
            while self.is_answering and at_s < load.duration_s + load.drain_s:
                at_s += TICK_S
                self.advance(at_s)
        finally:
            if collects:
                gc.enable()
        run = merged([engine.result(repeat) for engine in self.engines])
        records = [self.record(journey, at_s) for journey in self.journeys.values()]
        online, offline = ([r for r in records if r.online is side] for side in (True, False))
        return replace(run, result=replace(run.result, online=online, offline=offline))

    @property
    def engines(self) -> list[PoolEngine]:
        """Of both pools."""
        return [*self._prefill, *self._decode]

    @property
    def is_answering(self) -> bool:
        """Whether an online request is under way."""
        return any(
            j.request.is_online and len(j.times) < j.answer_tokens for j in self.journeys.values()
        )

    def advance(self, until_s: float) -> None:
        """Both pools, to an instant; what prefill engines finish moves on at its own instant."""
        online = self._load.online
        while self._place < len(online) and online[self._place].arrival_s < until_s:
            traced = online[self._place]
            lengths = traced.input_tokens, traced.output_tokens
            self._begin(f"online-{self._place}", RequestClass.ONLINE, lengths, traced.arrival_s)
            self._place += 1
        for engine in self._prefill:
            engine.advance(until_s)
            for request in engine.ended:
                self._hand_over(request)
        while self._handed and self._to_decode(self._handed[0]):
            self._handed.popleft()
        for engine in self._decode:
            engine.advance(until_s)
            for request in engine.ended:
                self._over(request, engine)

    def _feed(self, batch: int, now_s: float) -> None:
        lengths = next(self._load.offline, None) if self._load.offline is not None else None
        if lengths is not None:
            rid, self._num_offline = f"offline-{self._num_offline}", self._num_offline + 1
            self._begin(rid, RequestClass.OFFLINE, lengths, now_s, batch)

    def _begin(
        self, rid: str, of: RequestClass, lengths: Lengths, now_s: float, batch: int = 0
    ) -> None:
        request = Request(rid, of, lengths[0], lengths[0], arrival_at_s=now_s)
        if of is not RequestClass.ONLINE:
            request.batch_id = str(batch)
            request.deadline_at_s = now_s + self._load.batch_windows_s[batch]
        first = min(self._prefill, key=lambda engine: engine.tokens)
        self.journeys[rid] = Journey(request, lengths[1], first)
        first.give(request, 1)

    def _hand_over(self, request: Request) -> None:
        journey = self.journeys[request.rid]
        journey.times = list(journey.first.engine.tracks[request.rid].times)
        if journey.answer_tokens == 1:
            self._over(request, journey.first)
        else:
            self._handed.append(journey)

    def _to_decode(self, journey: Journey) -> bool:
        """Whether the engine with the least to do has room for its KV, elsewhere for now."""
        second = min(self._decode, key=lambda engine: engine.tokens)
        tokens, pool = journey.request.prompt_tokens, second.engine.pool
        pages = pages_for(tokens, pool.host_page_tokens)
        if pages > pool.host_free_pages:
            return False
        request = replace(
            journey.request,
            fill_tokens=tokens + 1,
            arrival_at_s=journey.times[0],
            phase=Phase.RETRACTED,
            computed_tokens=0,
            device_pages=0,
            in_flight=False,
            host_pages=pages,
            host_tokens=tokens,
        )
        pool.host.extend(request.rid, pages)
        journey.second = second
        second.give(request, journey.answer_tokens)
        return True

    def _over(self, request: Request, engine: PoolEngine) -> None:
        journey = self.journeys[request.rid]
        if journey.second is not None:
            journey.times += engine.engine.tracks[request.rid].times
        if not request.is_online:
            self._feed(int(request.batch_id), engine.engine.now_s)

    def record(self, journey: Journey, now_s: float) -> RequestRecord:
        request, times = journey.request, journey.times
        done = len(times) >= journey.answer_tokens
        retractions = 0
        if journey.second is not None:
            track = journey.second.engine.tracks.get(request.rid)
            retractions = track.retractions if track is not None else 0
            if not done and track is not None:
                times = times + track.times
        failed = request.is_online and not done
        return RequestRecord(
            request.rid,
            request.is_online,
            request.prompt_tokens,
            scheduled_s=request.arrival_at_s,
            sent_s=request.arrival_at_s,
            token_times_s=times,
            retractions=retractions,
            error=NOT_IN_TIME if failed else "",
            given_up_s=now_s if failed else None,
            done=done,
        )
