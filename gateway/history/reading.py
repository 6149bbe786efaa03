"""The history of a chart's span: a few hundred moments, with percentiles."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import accumulate, zip_longest
from typing import Final

from sqlalchemy.ext.asyncio import AsyncSession

from engine_adapter.scheduling.distribution import EDGES_S
from gateway.history.recorder import PERIOD_S
from gateway.history.series import ANSWERS, EngineTime
from store.repositories import history
from store.repositories.history import Point


@dataclass(frozen=True)
class ChartSpan:
    """How far back a chart or a verdict reads, and the steps that it is read in.

    Attributes:
        label: What it is called.
        span_s: Its length.
        step_s: Their length, one of the history's.
    """

    label: str
    span_s: int
    step_s: int

    def bounds(self, now_s: float) -> tuple[int, int]:
        """From when until when it is drawn (Unix seconds): whole steps, the last one begun."""
        until_s = (int(now_s) // self.step_s + 1) * self.step_s
        return until_s - self.span_s, until_s


CHART_SPANS: Final[Mapping[str, ChartSpan]] = {
    "15m": ChartSpan("15 minutes", 900, 10),
    "3h": ChartSpan("3 hours", 3 * 3600, 60),
    "24h": ChartSpan("24 hours", 86_400, 600),
    "14d": ChartSpan("14 days", 14 * 86_400, 7200),
}
DEFAULT_SPAN: Final = "15m"
NOW_S: Final = 60
"""What "now" is made of: the newest so many seconds."""
RECENT: Final = ChartSpan("now", 2 * NOW_S, 10)
"""Where they are looked for: a writer may be a little late."""


@dataclass(frozen=True)
class Latencies:
    """A distribution that was read: see `Distribution.figures`."""

    figures: Sequence[float] = ()

    @property
    def num(self) -> int:
        """How many."""
        return int(sum(self.figures[3:]))

    @property
    def judged(self) -> float:
        """How many had a target."""
        return sum(self.figures[:2])

    @property
    def share_in_time(self) -> float | None:
        """Of those that were judged; none where none was."""
        return self.figures[0] / self.judged if self.judged else None

    def quantile_s(self, share: float) -> float | None:
        """The latency that this share stays within, to a bucket's width; none without values."""
        within = self._within
        wanted = share * within[-1] if within else 0.0
        if not wanted:
            return None
        at = bisect_left(within, wanted)
        if at >= len(EDGES_S):
            return EDGES_S[-1]
        seen, below_s = (within[at - 1], EDGES_S[at - 1]) if at else (0.0, 0.0)
        return below_s + (EDGES_S[at] - below_s) * (wanted - seen) / (within[at] - seen)

    @cached_property
    def _within(self) -> list[float]:
        """How many stay within each edge; last, all."""
        return list(accumulate(self.figures[3:]))


@dataclass
class Moment:
    """Everything known of one point of a chart.

    Attributes:
        at_s: Its beginning, Unix seconds.
        latencies: By series, over all models or engines.
        engines: By address.
        answers: Responses to prompts by HTTP status.
    """

    at_s: int
    latencies: dict[str, Latencies] = field(default_factory=dict)
    engines: dict[str, EngineTime] = field(default_factory=dict)
    answers: dict[str, float] = field(default_factory=dict)

    def of(self, series: str) -> Latencies:
        """One distribution; an empty one where nothing is known."""
        return self.latencies.get(series, Latencies())

    @property
    def all_engines(self) -> EngineTime:
        """All engines' figures added up."""
        return _engine_time([*self.engines.values()])

    @property
    def covered_s(self) -> float:
        """How much of the point was written about."""
        return PERIOD_S * max((one.asked for one in self.engines.values()), default=0.0)

    def per_s(self, total: float) -> float | None:
        """A total of all engines as a rate; none where nothing was written."""
        return total / self.covered_s if self.covered_s else None


@dataclass(frozen=True)
class History:
    """A span, point by point, oldest first."""

    moments: Sequence[Moment]

    @property
    def x(self) -> list[int]:
        """Beginnings of the points."""
        return [moment.at_s for moment in self.moments]

    @cached_property
    def whole(self) -> Moment:
        """The whole span as one point."""
        return _merged(0, self.moments)

    def last(self, seconds: int) -> Moment:
        """The points that began in the newest so many seconds, as one."""
        newest = self.moments[-1].at_s if self.moments else 0
        return _merged(0, [one for one in self.moments if one.at_s > newest - seconds])

    def since(self, at_s: float) -> Moment:
        """The points that began after an instant (Unix seconds), as one."""
        return _merged(0, [one for one in self.moments if one.at_s > at_s])

    def quantiles_ms(self, series: str, share: float) -> list[float | None]:
        found = (moment.of(series).quantile_s(share) for moment in self.moments)
        return [None if one is None else round(1000 * one, 1) for one in found]


@dataclass(frozen=True)
class Mark:
    """Something that happened to an engine, for charts.

    Attributes:
        at_s: Beginning of the point in which it was seen, Unix seconds.
        engine: Its address.
        what: `lost`, `back`, `restarted`, `drained` or `used again`.
    """

    at_s: int
    engine: str
    what: str


def marks(history: History) -> list[Mark]:
    """What happened to engines, oldest first. How an engine was at the beginning is no mark."""
    found: list[Mark] = []
    was_down: dict[str, bool] = {}
    was_draining: dict[str, bool] = {}
    for moment in history.moments:
        for url, engine in moment.engines.items():
            if not engine.asked:
                continue
            down, draining = engine.up < engine.asked, engine.draining > 0
            before = was_down.get(url, down)
            if engine.restarts:
                found.append(Mark(moment.at_s, url, "restarted"))
            elif down != before:
                found.append(Mark(moment.at_s, url, "lost" if down else "back"))
            if draining != was_draining.get(url, draining):
                found.append(Mark(moment.at_s, url, "drained" if draining else "used again"))
            was_down[url], was_draining[url] = down, draining
    return found


async def read(session: AsyncSession, span: ChartSpan, series: Sequence[str]) -> History:
    """Some series over a span; points without anything are there too, and hold nothing."""
    points = await history.points(
        session,
        span.step_s,
        span_s=span.span_s,
        series=[*series],
        together=[one for one in series if one not in ("engine", ANSWERS)],
    )
    return history_of(points, span.step_s)


def history_of(points: Iterable[Point], step_s: int) -> History:
    """Steps of the history as moments; of a series other than `engine` there is one in each."""
    moments: dict[int, Moment] = {}
    for point in points:
        moment = moments.setdefault(point.at_s, Moment(point.at_s))
        if point.series == "engine":
            moment.engines[point.subject] = _engine_time([point.figures])
        elif point.series == ANSWERS:
            moment.answers[point.subject] = sum(point.figures)
        else:
            moment.latencies[point.series] = Latencies(point.figures)
    if moments:
        for at_s in range(min(moments), max(moments), step_s):
            moments.setdefault(at_s, Moment(at_s))
    return History([moments[at_s] for at_s in sorted(moments)])


def _merged(at_s: int, moments: Sequence[Moment]) -> Moment:
    merged = Moment(at_s)
    for series in {name for one in moments for name in one.latencies}:
        parts = [one.latencies[series].figures for one in moments if series in one.latencies]
        merged.latencies[series] = Latencies(_sum(parts))
    for url in {url for one in moments for url in one.engines}:
        shares = [one.engines[url] for one in moments if url in one.engines]
        merged.engines[url] = _engine_time(shares)
    for one in moments:
        for status, num in one.answers.items():
            merged.answers[status] = merged.answers.get(status, 0.0) + num
    return merged


def _engine_time(parts: Sequence[Sequence[float]]) -> EngineTime:
    """Figures of `engine` added up, of points that an earlier or a later version wrote too."""
    return EngineTime(*_sum(parts)[: len(EngineTime._fields)])


def _sum(parts: Sequence[Sequence[float]]) -> Sequence[float]:
    if len(parts) == 1:
        return parts[0]
    return [sum(column) for column in zip_longest(*parts, fillvalue=0.0)]
