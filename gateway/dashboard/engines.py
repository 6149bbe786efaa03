"""What the engines say about themselves now, and a short memory of it for the charts."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import orjson

from api.errors import EngineUnavailable
from engine_adapter.client.base import EngineClient, EngineFacts
from engine_adapter.client.pool import Member
from gateway.dashboard import wording
from gateway.history.reading import History, marks
from gateway.history.recorder import PERIOD_S
from gateway.history.series import EngineTime, kv_held

READ_TIMEOUT_S = 3.0
HISTORY_S = 1800.0
MAX_SAMPLES = 1000
"""Half an hour at one sample about every two seconds."""
MAX_GAP_S = 6.0
"""Three readings: what lies between samples further apart is not known, and not drawn."""

# Where a figure stands in the report, and what it is called here.
_AIMS = {
    "policy": "Policy",
    "level": "Level",
    "slo.ttft_s": "TTFT target",
    "slo.tbt_s": "TBT target",
}
_ATTAINED = {
    "attained.ttft": "TTFT, P90",
    "attained.tbt": "TBT, P90",
}
_TOTALS = {
    "online_tokens": "Online tokens",
    "offline_tokens": "Harvested tokens",
    "aborts": "Steps stopped",
    "parks": "Row-steps parked",
    "retracts": "Rows retracted",
    "checkpointed_pages": "Host pages written (16 tokens each)",
}

UNSAID = (
    "live.",
    "by_batch.",
    "stops_by_layer.",
    "isolation.ttft.",
    "isolation.tbt.",
    "recent_steps",
)


@dataclass(frozen=True)
class EngineReading:
    """One engine at one instant.

    Attributes:
        url: Its address.
        facts: What it said; none when it did not answer.
        healthy: Whether its health check passes too.
    """

    url: str
    facts: EngineFacts | None
    healthy: bool = True

    @property
    def state(self) -> tuple[str, str]:
        """What to call it, and the kind of colour that goes with it."""
        if self.facts is None:
            return "not answering", "bad"
        return ("answering", "good") if self.healthy else ("not healthy", "warn")

    @property
    def runtime(self) -> Mapping[str, Any]:
        """What our scheduler inside the engine reports; empty without it."""
        return self.facts.runtime if self.facts else {}

    @property
    def num_waiting(self) -> int:
        """Requests in the engine's queue."""
        queue = self.facts.queue if self.facts else None
        return queue[0] if queue else self._num_live("waiting")

    @property
    def num_running(self) -> int:
        """Requests being computed."""
        queue = self.facts.queue if self.facts else None
        return queue[1] if queue else self._num_live("running")

    @property
    def num_parked(self) -> int | None:
        """Running requests that the newest step left out; none where it is not reported."""
        parked = self.runtime.get("parked_requests")
        return parked if isinstance(parked, int) else None

    @property
    def kv_use(self) -> float | None:
        """Share of KV memory that requests hold, 0 to 1; none where it is not reported."""
        return kv_held(self.facts) if self.facts is not None else None

    @property
    def profiled(self) -> str:
        """How its profile stands, such as `measuring`; empty for one without."""
        state = self.facts.reported("profile.state") if self.facts else None
        return state if isinstance(state, str) else ""

    @property
    def classes(self) -> dict[str, int]:
        """Live requests per class, the classes in order of precedence."""
        live = self.runtime.get("live")
        classes = live.get("classes") if isinstance(live, Mapping) else None
        if not isinstance(classes, Mapping):
            return {}
        words = list(classes.values())
        return {word: words.count(word) for word in ("online", "flex", "offline")}

    def now(self) -> Iterator[tuple[str, str]]:
        """Its requests and its memory at this instant."""
        yield "Running", wording.count(self.num_running)
        yield "Waiting", wording.count(self.num_waiting)
        for word, num in self.classes.items():
            yield word.capitalize(), wording.count(num)
        if self.num_parked is not None:
            yield "Parked", wording.count(self.num_parked)
        yield "KV memory in use", "–" if self.kv_use is None else f"{100 * self.kv_use:.0f} %"

    def limits(self) -> Iterator[tuple[str, str]]:
        """What it can do at most, where it answers."""
        if self.facts is None:
            return
        yield "Co-serving level", f"{self.facts.level} of 3"
        for words, num, unit in (
            ("Context", self.facts.context_tokens, "tokens"),
            ("KV memory, whole", self.facts.kv_tokens, "tokens"),
            ("Most running", self.facts.max_running, "requests"),
        ):
            yield words, f"{wording.count(num)} {unit}" if num else "–"
        yield "Engine", self.facts.server_label

    def reported(self) -> Iterator[tuple[str, list[tuple[str, str]]]]:
        """What its scheduler tells, under a heading each; none that is empty."""
        for heading, figures in (
            ("Scheduler", self._aims()),
            ("Online requests of late, in the engine", self._attained()),
            ("Scheduler, since the engine started", self._totals()),
        ):
            if told := list(figures):
                yield heading, told

    def _aims(self) -> Iterator[tuple[str, str]]:
        """Policy and targets, where they are reported."""
        for words, path, value in self._reported(_AIMS):
            is_time = path.startswith("slo.")
            yield words, f"{1000 * float(value):,.0f} ms" if is_time else str(value)

    def _attained(self) -> Iterator[tuple[str, str]]:
        """The newest latencies of online requests, where they are reported."""
        for words, _, value in self._reported(_ATTAINED):
            p90, share = wording.latency(value["p90_s"]), wording.share(value["share_in_time"])
            yield words, f"{p90}, {share} in time ({value['num']:,} samples)"

    def _totals(self) -> Iterator[tuple[str, str]]:
        """What matters most of what the scheduler has counted since the engine started."""
        for words, _, value in self._reported(_TOTALS):
            yield words, f"{value:,}"

    def figures(self) -> Iterator[tuple[str, str]]:
        """Everything else the runtime reports, flattened, in its own order.

        What fills pages apart: ids, layers of stops, distributions and steps, which are drawn.
        """
        for key, value in _flat(self.runtime, ""):
            if not key.startswith(UNSAID):
                yield key, value

    def _reported(self, wanted: Mapping[str, str]) -> Iterator[tuple[str, str, Any]]:
        for path, words in wanted.items():
            value = self.facts.reported(path) if self.facts else None
            if value is not None:
                yield words, path, value

    def _num_live(self, kind: str) -> int:
        live = self.runtime.get("live")
        ids = live.get(kind) if isinstance(live, Mapping) else None
        return len(ids) if isinstance(ids, Sequence) else 0


@dataclass(frozen=True)
class Sample:
    """One point of a chart; without counts where nothing is known: the lines break there."""

    at_s: float
    num_running: int | None = None
    num_waiting: int | None = None


@dataclass
class EngineHistory:
    """Samples per engine, kept while somebody watches; starts anew with the process.

    Invariant: no line is drawn over time that nobody measured.
    """

    _samples: dict[str, deque[Sample]] = field(default_factory=dict)

    def add(self, reading: EngineReading, at_s: float) -> None:
        """Remember a reading, also that an engine did not answer."""
        at_s = round(at_s, 1)
        samples = self._samples.setdefault(reading.url, deque(maxlen=MAX_SAMPLES))
        while samples and samples[0].at_s < at_s - HISTORY_S:
            samples.popleft()
        if samples and at_s - samples[-1].at_s > MAX_GAP_S:
            samples.append(Sample(samples[-1].at_s + MAX_GAP_S))
        if reading.facts is None:
            samples.append(Sample(at_s))
        else:
            samples.append(Sample(at_s, reading.num_running, reading.num_waiting))

    def chart(self, url: str) -> str:
        """The JSON that an engine's chart element carries."""
        samples = self._samples.get(url, deque())
        series: list[dict[str, Any]] = [
            {"label": "running", "y": [s.num_running for s in samples]},
            {"label": "waiting", "y": [s.num_waiting for s in samples]},
        ]
        x = [s.at_s for s in samples]
        span = [x[-1] - HISTORY_S, x[-1]] if x else None
        return orjson.dumps({"x": x, "series": series, "span": span}).decode()


def day_chart(history: History, url: str, span: tuple[int, int]) -> str:
    """An engine's tokens a second, online and harvested, as the JSON of a chart.

    A point in which no gateway asked it is a gap. What happened to it is marked.
    """
    online: list[float | None] = []
    harvested: list[float | None] = []
    for moment in history.moments:
        engine = moment.engines.get(url, EngineTime())
        covered_s = PERIOD_S * engine.asked
        for line, tokens in ((online, engine.online_tokens), (harvested, engine.harvested_tokens)):
            line.append(round(tokens / covered_s, 1) if covered_s else None)
    series: list[dict[str, Any]] = [
        {"label": "online", "y": online},
        {"label": "harvested", "y": harvested},
    ]
    happened = [[one.at_s, one.what] for one in marks(history) if one.engine == url]
    return orjson.dumps(
        {"x": history.x, "series": series, "unit": "tok/s", "span": span, "marks": happened}
    ).decode()


def memory_shares(engines: EngineTime) -> tuple[float | None, float | None]:
    """Mean share of KV memory in use, on the device and on the host."""
    return (
        engines.kv_held / engines.kv_samples if engines.kv_samples else None,
        engines.host_held / engines.host_samples if engines.host_samples else None,
    )


def tokens_chart(history: History, span: tuple[int, int]) -> str:
    """Tokens per second by class, one on top of the other."""
    series: dict[str, list[float | None]] = {"online": [], "flex": [], "offline": []}
    for moment in history.moments:
        total = moment.all_engines
        offline = total.harvested_tokens - total.flex_tokens
        for name, tokens in zip(
            series, (total.online_tokens, total.flex_tokens, offline), strict=True
        ):
            rate = moment.per_s(tokens)
            series[name].append(None if rate is None else round(rate, 1))
    return _drawn(history.x, series, unit="tok/s", stack=True, span=span)


def memory_chart(history: History, span: tuple[int, int]) -> str:
    """Shares of KV memory in use."""
    shares = [memory_shares(moment.all_engines) for moment in history.moments]
    percents = [
        [None if one is None else round(100 * one, 1) for one in side]
        for side in zip(*shares, strict=True)
    ] or [[], []]
    return _drawn(
        history.x,
        {"device": percents[0], "host checkpoints": percents[1]},
        unit="%",
        max=100,
        span=span,
    )


def _drawn(x: Sequence[int], series: dict[str, Any], **more: Any) -> str:
    lines = [{"label": label, "y": y} for label, y in series.items()]
    return orjson.dumps({"x": [*x], "series": lines, **more}).decode()


def what_draining_means(members: Sequence[Member], url: str) -> str:
    """Who is served no more when an engine is drained, and who takes its requests."""
    model = next((m.facts.model for m in members if m.url == url and m.facts), "")
    others = [m for m in members if m.open and m.url != url and m.facts and m.facts.serves(model)]
    if not others:
        of = f" of {model}" if model else ""
        return f"This is the last engine{of}: chat with it will be refused, and its batches wait."
    engines = "1 other engine" if len(others) == 1 else f"{len(others)} other engines"
    return f"New requests for {model} go to {engines}. What runs here may finish."


async def read_engine(client: EngineClient) -> EngineReading:
    """Ask one engine; never raises for one that does not answer."""
    try:
        async with asyncio.timeout(READ_TIMEOUT_S):
            return EngineReading(client.url, await client.facts(), await client.healthy())
    except (EngineUnavailable, TimeoutError):
        return EngineReading(client.url, None)


async def read_engines(clients: Sequence[EngineClient]) -> list[EngineReading]:
    """Ask all engines at once, in their order."""
    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(read_engine(client)) for client in clients]
    return [task.result() for task in tasks]


def _flat(value: Any, prefix: str) -> Iterator[tuple[str, str]]:
    if isinstance(value, Mapping):
        for key, inner in value.items():
            yield from _flat(
                inner, f"{prefix}{key}." if isinstance(inner, Mapping) else f"{prefix}{key}"
            )
    elif isinstance(value, bool) or value is None:
        yield prefix, {True: "yes", False: "no", None: "–"}[value]
    elif isinstance(value, float):
        yield prefix, wording.figure(prefix, value)
    elif isinstance(value, int):
        yield prefix, f"{value:,}"
    elif isinstance(value, list | tuple):
        yield prefix, f"{len(value)} entries" if len(value) > 8 else ", ".join(map(str, value))
    else:
        yield prefix, str(value)
