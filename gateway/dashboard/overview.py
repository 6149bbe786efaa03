"""The first page: is chat safe, what is harvested, what is wrong."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final

import orjson

from batch.steer import MAX_PRIORITY
from engine_adapter.client.pool import Member
from gateway.dashboard.fragments import Fragments
from gateway.dashboard.resources import Resources
from gateway.dashboard.templating import render
from gateway.history.reading import (
    CHART_SPANS,
    DEFAULT_SPAN,
    NOW_S,
    RECENT,
    ChartSpan,
    History,
    marks,
    read,
)
from gateway.history.recorder import PERIOD_S
from gateway.history.series import EngineTime
from gateway.observability.latency_metrics import targets_of
from gateway.verdict.facts import LookBack
from gateway.verdict.judge import (
    FAIR_SHARE,
    GOOD_SHARE,
    MIN_JUDGED,
    Verdict,
    judge,
    shortest,
    tone_of,
)
from gateway.verdict.reading import facts_of, harvest_of, read_database
from gateway.verdict.remedies import FOLDER, REMEDIES, steps

PLACES: Final = {
    "no_engine": ("/engines", "Engines"),
    "all_drained": ("/engines", "Engines"),
    "engine_lost": ("/engines", "Engines"),
    "engine_drained": ("/engines", "Engines"),
    "engine_unusable": ("/engines", "Engines"),
    "policy_errs": ("/scheduler", "Scheduler"),
    "late_batch_work": ("/isolation", "Isolation"),
    "late_too_much_chat": ("/usage", "Usage"),
    "late_fewer_engines": ("/engines", "Engines"),
    "late_old_profile": ("/scheduler", "Scheduler"),
    "late_slow_machine": ("/scheduler", "Scheduler"),
    "late_measuring": ("/engines", "Engines"),
    "receiver_failing": ("/webhooks", "Webhooks"),
    "receiver_disabled": ("/webhooks", "Webhooks"),
    "disk_full": ("/batches?group=done", "Old batches"),
    "disk_nearly_full": ("/batches?group=done", "Old batches"),
    "workers_away": ("/batches?group=live", "Live batches"),
    "broker_away": ("/batches?group=live", "Live batches"),
    "stages_late": ("/batches?group=live", "Live batches"),
}
"""Where to look at an issue of a kind, where a page shows it."""
SERIES: Final = ("engine", "ttft:online", "tbt:online")
NAMES: Final = {"ttft": "Time to first token", "tbt": "Time between tokens"}
PERCENTILES: Final = (50, 90, 99)
MAX_MARKS: Final = 30
"""Marks in a chart, the newest ones."""


@dataclass(frozen=True)
class LatencyCard:
    """One latency of chat: its chart, and how its target is kept.

    Attributes:
        of: `ttft` or `tbt`.
        target_s: None where no engine names one.
        judged: Share in time over the minutes that the verdict judges; none with too few samples.
        label: Those minutes, as in "last 5 min"; without them how many samples there were.
        in_time: Share in time over the span of the chart; none with too few samples.
        percentiles: Seconds of each of `PERCENTILES` over that span.
    """

    of: str
    target_s: float | None
    chart: str
    num: int
    p90_s: float | None
    judged: float | None
    label: str
    in_time: float | None
    percentiles: Sequence[float | None]

    @property
    def name(self) -> str:
        return NAMES[self.of]

    @property
    def tone(self) -> str:
        """The kind of colour of what is judged."""
        return tone_of(self.judged)

    @property
    def in_time_tone(self) -> str:
        """The kind of colour of `in_time`."""
        return tone_of(self.in_time)


@dataclass(frozen=True)
class OverviewPage:
    """The first page of an organisation's operators."""

    organization_id: str
    project_id: str
    span: str = DEFAULT_SPAN

    @property
    def fresh_s(self) -> float:
        """See `LivingPage`: the history moves every ten seconds, what is wrong sooner."""
        return 2.9

    async def read(self, resources: Resources) -> Fragments:
        span = CHART_SPANS[self.span]
        broker = asyncio.ensure_future(resources.broker_answers())
        async with resources.readings.snapshot() as work:
            history = await read(work, span, SERIES)
            recent = await read(work, RECENT, SERIES)
            known = await read_database(
                work,
                resources.engine_pool,
                organization_id=self.organization_id,
                project_id=self.project_id,
            )
        members = resources.engine_pool.members
        now = recent.last(NOW_S)
        verdict = judge(facts_of(resources.state, known, broker_answers=await broker))
        back = shortest(known.fields["look_backs"], lambda one: one.num_answers)
        look_backs = known.fields["look_backs"]
        happened = [
            (one.at_s, f"{known.names.get(one.engine, one.engine)} {one.what}")
            for one in marks(history)
        ][-MAX_MARKS:]
        drawn = {"span": span.bounds(resources.clock.now().timestamp()), "marks": happened}
        cards = [latency_card(of, history, look_backs, members, drawn) for of in ("ttft", "tbt")]
        whole = history.whole
        values: dict[str, Any] = {
            "verdict": verdict,
            "places": PLACES,
            "remedies": REMEDIES,
            "steps": steps,
            "runbook_folder": FOLDER,
            "max_priority": MAX_PRIORITY,
            "answers": back or known.fields["look_backs"][-1],
            "cards": cards,
            "happened": [(datetime.fromtimestamp(at_s, UTC), what) for at_s, what in happened],
            "span": span,
            "total": whole.all_engines,
            "now": now,
            "recent": now.all_engines,
            "harvest": harvest_of(whole.engines, members, resources.settings.price),
            "shares": harvested_shares(whole.all_engines),
            "requests_tone": _requests_tone(verdict),
            "batches": known.batches,
            "percentiles": PERCENTILES,
            "good_share": GOOD_SHARE,
            "fair_share": FAIR_SHARE,
        }
        parts = ("verdict", "batches", "figures", "latency")
        return Fragments(
            whole={
                f"overview-{n}": render(f"fragments/overview_{n}.html", **values) for n in parts
            },
            statuses={one.what: "is an issue" for one in verdict.issues}
            | {name: line.says for name, line in verdict.lines.items() if name != "harvest"},
        )


def _requests_tone(verdict: Verdict) -> str:
    """The colour of the tile of requests: that of the issue about them; none without one."""
    found = [one.tone for one in verdict.issues if one.code.startswith("requests_")]
    return min(found, default="")  # `bad` is before `warn`


def harvested_shares(engines: EngineTime) -> tuple[float | None, float | None]:
    """Harvested tokens of all that engines could have computed, and of all that they did.

    Could: at the pace of their steps, all the time that they were up.
    """
    all_tokens = engines.online_tokens + engines.harvested_tokens
    up_s = PERIOD_S * engines.up
    if not all_tokens or not up_s:
        return None, None
    of_done = engines.harvested_tokens / all_tokens
    return of_done * min(1.0, engines.step_s / up_s), of_done


def latency_card(
    of: str,
    history: History,
    look_backs: Sequence[LookBack],
    members: Sequence[Member],
    drawn: Mapping[str, Any],
) -> LatencyCard:
    """One latency over a span; what is in time is judged as the verdict judges it."""
    series = f"{of}:online"
    place = 0 if of == "ttft" else 1
    targets = [target for m in members if (target := targets_of(m.facts)[place])]
    target_s = min(targets, default=None)
    whole = history.whole
    line = {} if target_s is None else {"target": round(1000 * target_s, 1)}
    judged = shortest(look_backs, lambda one: one.of(series).judged)
    num_hour = int(look_backs[-1].of(series).judged)
    few = "too few samples" if num_hour else "no samples"
    percentiles = {f"P{p}": history.quantiles_ms(series, p / 100) for p in PERCENTILES}
    return LatencyCard(
        of=of,
        target_s=target_s,
        chart=_chart(history.x, percentiles, unit="ms", **line, **drawn),
        num=whole.of(series).num,
        p90_s=whole.of(series).quantile_s(0.9),
        judged=None if judged is None else judged.of(series).share,
        label=f"{few} in the last hour" if judged is None else judged.label,
        in_time=whole.of(series).share_in_time if whole.of(series).judged >= MIN_JUDGED else None,
        percentiles=[whole.of(series).quantile_s(p / 100) for p in PERCENTILES],
    )


def _chart(x: Sequence[int], series: dict[str, Any], **more: Any) -> str:
    lines = [{"label": label, "y": y} for label, y in series.items()]
    return orjson.dumps({"x": [*x], "series": lines, **more}).decode()


def span_of(word: str) -> tuple[str, ChartSpan]:
    """The span that an address names; the usual one where it names none that there is."""
    word = word if word in CHART_SPANS else DEFAULT_SPAN
    return word, CHART_SPANS[word]
