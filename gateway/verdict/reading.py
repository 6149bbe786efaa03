"""Gathers the facts of a verdict from the pool of engines, the host and the database."""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

from sqlalchemy.exc import SQLAlchemyError
from sqlalchemy.ext.asyncio import AsyncSession
from starlette.datastructures import State

from engine_adapter.client.pool import EnginePool, Member
from gateway.batch_shapes import extensions
from gateway.dashboard.batch_view import BatchView
from gateway.history.reading import ChartSpan, History, Latencies, Moment, read
from gateway.history.recorder import PERIOD_S
from gateway.history.series import ANSWERS, EngineTime, slowdown
from gateway.observability.latency_metrics import targets_of
from gateway.verdict.facts import (
    LOOK_BACKS,
    Disk,
    Engine,
    Facts,
    Kept,
    LiveBatch,
    LookBack,
    Receiver,
)
from gateway.verdict.harvest import Harvest, Price
from gateway.verdict.judge import Verdict, judge
from store.repositories import dispatcher, engine, overview, stage, stage_count, statements
from store.repositories import webhook_overview as webhooks
from store.repositories.webhook_overview import EndpointOverview

MAX_BATCHES: Final = 12
MAX_ENDPOINTS: Final = 100
PROBE_S: Final = 2.0
FRESH_S: Final = 2.0
"""A verdict for those without a key serves for so long, however many ask."""
LATENCIES: Final = (
    "ttft:online", "tbt:online", "beside:ttft", "beside:tbt", "apart:ttft", "apart:tbt",
)  # fmt: skip
MINUTE: Final = ChartSpan("last minute", 120, 10)
HOUR: Final = ChartSpan("last hour", 3720, 60)
DAY: Final = ChartSpan("last day", 86_400, 7200)
GPU: Final = "cuda"
"""The device of an engine whose hours are those of GPUs."""
MIN_SLOWDOWN_SAMPLES: Final = 360
"""An hour of them: what is usual for an engine is not known sooner."""


@dataclass(frozen=True)
class FromDatabase:
    """What the database knows.

    Attributes:
        fields: Of `Facts`.
        batches: The live ones that are among them.
        names: What engines are called, by address.
        day: What they did in the last day.
    """

    fields: Mapping[str, Any]
    batches: Sequence[BatchView]
    names: Mapping[str, str]
    day: Moment


async def read_database(
    session: AsyncSession,
    pool: EnginePool,
    *,
    organization_id: str | None = None,
    project_id: str | None = None,
) -> FromDatabase:
    """The part of the facts that is stored.

    Args:
        session: An open transaction.
        pool: The engines, for what they say of batches.
        organization_id: Whose batches; those of all where none is named.
        project_id: Whose organisation's receivers; likewise.
    """
    now_s = (await statements.now(session)).timestamp()
    minute = await read(session, MINUTE, (*LATENCIES, ANSWERS))
    hour = await read(session, HOUR, (*LATENCIES, ANSWERS))
    day = (await read(session, DAY, ("engine",))).whole
    due = await overview.due(session, organization_id, limit=MAX_BATCHES)
    predicted = await extensions(session, pool, [row.batch for row in due])
    batches = [BatchView(row, one) for row, one in zip(due, predicted, strict=True)]
    receivers = await webhooks.endpoints(session, project_id, limit=MAX_ENDPOINTS)
    stages = await stage_count.totals(session)
    fields = {
        "look_backs": look_backs(minute, hour, now_s),
        "harvest": harvest_of(day.engines, pool.members),
        "batches": [_live_batch(view) for view in batches],
        "num_live": (await overview.totals(session, organization_id)).of("live"),
        "receivers": [_receiver(one) for one in receivers],
        "sweep_age_s": next((one.ended_age_s for one in stages if one.stage == "sweep"), None),
        "heartbeat_age_s": await dispatcher.heartbeat_age_s(session),
        "stage_wait_s": await stage.oldest_due_s(session),
        "database_answers": True,
    }
    return FromDatabase(fields, batches, await engine.names(session), day)


def facts_of(state: State, known: FromDatabase | None, *, broker_answers: bool) -> Facts:
    """What this gateway sees now, and what the database knew; nothing of it while it is away."""
    pool: EnginePool = state.engines
    names = {} if known is None else known.names
    usual = {} if known is None else known.day.engines
    loops = getattr(state, "loops", None)
    registry = getattr(state, "registry", None)
    seen = Facts(
        engines=[_engine(one, names, usual.get(one.url)) for one in pool.members],
        targets_s=_targets(pool.members),
        disk=_disk(state.settings.home),
        full=state.storage.full,
        database_answers=False,
        database_takes_writes=state.storage.takes_writes,
        broker_answers=broker_answers,
        loops_down=loops.down if loops is not None else (),
        num_unusable=len(registry.unusable) if registry is not None else 0,
    )
    if known is None:
        return seen
    priced = replace(known.fields["harvest"], price=state.settings.price)
    return replace(seen, **{**known.fields, "harvest": priced})


class Verdicts:
    """What the database knows of the whole service, for those who ask without a key.

    One reading runs at a time and serves all who ask meanwhile: a database that hangs is not asked
    once more by each of them.
    """

    def __init__(self, state: State) -> None:
        self._state = state
        self._reading: asyncio.Task[FromDatabase | None] | None = None
        self._begun_s = 0.0

    async def known(self) -> FromDatabase | None:
        """The newest; none without a database."""
        now_s = self._state.clock.monotonic()
        task = self._reading
        if task is None or (task.done() and now_s - self._begun_s >= FRESH_S):
            self._begun_s = now_s
            task = self._reading = asyncio.ensure_future(self._read())
        return await asyncio.shield(task)

    async def judged(self) -> Verdict:
        """The verdict now. What does not answer within `PROBE_S` counts as away."""
        known = asyncio.ensure_future(self.known())
        broker = asyncio.ensure_future(self._state.broker.ping())
        # One that hangs ends by a limit of its own; its end is not waited for.
        await asyncio.wait({known, broker}, timeout=PROBE_S)
        for one in (known, broker):
            one.add_done_callback(lambda done: done.cancelled() or done.exception())
        answers = broker.done() and not broker.cancelled() and broker.exception() is None
        read = known.result() if known.done() else None
        return judge(facts_of(self._state, read, broker_answers=answers))

    async def _read(self) -> FromDatabase | None:
        try:
            async with self._state.readings.snapshot() as session:
                return await read_database(session, self._state.engines)
        except (SQLAlchemyError, OSError):
            return None


def look_backs(minute: History, hour: History, now_s: float) -> list[LookBack]:
    """What was seen in the last 1, 5, 15 and 60 minutes before an instant."""
    found = []
    for minutes in LOOK_BACKS:
        source, step_s = (minute, MINUTE.step_s) if minutes == 1 else (hour, HOUR.step_s)
        moment = source.since(now_s - 60 * minutes - step_s)
        kept = {name: _kept(one) for name, one in moment.latencies.items()}
        found.append(LookBack(minutes, kept, moment.answers))
    return found


def _kept(seen: Latencies) -> Kept:
    met, missed = [*seen.figures[:2], 0.0, 0.0][:2]
    return Kept(met, missed, seen.num)


def _engine(member: Member, names: Mapping[str, str], day: EngineTime | None) -> Engine:
    facts = member.facts
    known = day is not None and day.slowdown_samples >= MIN_SLOWDOWN_SAMPLES
    errors = facts.reported("policy_errors") if facts else None
    profile = facts.reported("profile.state") if facts else None
    return Engine(
        name=names.get(member.url, member.url),
        model=facts.model if facts else "",
        up=member.up,
        why=member.why,
        draining=member.draining,
        num_policy_errors=errors if isinstance(errors, int) else 0,
        policy_error=str(facts.reported("last_policy_error") or "") if facts else "",
        slowdown=slowdown(facts) if facts else None,
        usual_slowdown=day.slowdown / day.slowdown_samples if known and day is not None else None,
        profile=profile if isinstance(profile, str) else "",
        url=member.url,
    )


def _targets(members: Sequence[Member]) -> dict[str, float]:
    """The shortest that any engine names, of each latency."""
    found: dict[str, float] = {}
    for member in members:
        for of, target_s in zip(("ttft", "tbt"), targets_of(member.facts), strict=True):
            if target_s is not None:
                found[of] = min(target_s, found.get(of, target_s))
    return found


def _disk(home: Path) -> Disk | None:
    try:
        usage = shutil.disk_usage(home)
    except OSError:
        return None
    return Disk(usage.total, usage.free)


def harvest_of(
    engines: Mapping[str, EngineTime], members: Sequence[Member], price: Price | None = None
) -> Harvest:
    """What engines, by address, harvested in some time."""
    num_gpus = {one.url: _num_gpus(one) for one in members}
    tokens = engine_s = 0.0
    for url, did in engines.items():
        all_tokens = did.online_tokens + did.harvested_tokens
        if all_tokens:
            up_s = PERIOD_S * did.up
            steps_s = min(did.step_s, up_s) if up_s else did.step_s
            share = did.harvested_tokens / all_tokens
            engine_s += share * steps_s * max(1, num_gpus.get(url, 0))
            tokens += did.harvested_tokens
    return Harvest(tokens, engine_s, any(num_gpus.values()), price)


def _num_gpus(member: Member) -> int:
    raw = {} if member.facts is None else member.facts.raw
    return int(raw.get("tp_size") or 1) if raw.get("device") == GPU else 0


def _live_batch(view: BatchView) -> LiveBatch:
    late_s = None
    if view.predicted_finish_at is not None:
        late_s = (view.predicted_finish_at - view.batch.expires_at).total_seconds()
    return LiveBatch(view.batch.id, view.source.input_name, late_s, view.waits_since_s)


def _receiver(one: EndpointOverview) -> Receiver:
    since = one.endpoint.failing_since_at
    return Receiver(
        one.endpoint.name,
        None if since is None else (one.now - since).total_seconds(),
        one.endpoint.disabled_at is not None,
        one.num_pending,
    )
