"""History in the database: the figures of /metrics, each once, whoever writes; and bounded."""

from __future__ import annotations

import random
import re
from collections import defaultdict
from collections.abc import Sequence
from itertools import zip_longest
from types import SimpleNamespace
from typing import Any

import pytest
from sqlalchemy import text

from engine_adapter.client.base import EngineFacts
from engine_adapter.scheduling.distribution import EDGES_S
from gateway.history.reading import CHART_SPANS, read
from gateway.history.recorder import HistoryRecorder
from gateway.history.series import NUM_OF_DISTRIBUTION, EngineTime
from gateway.observability.latency_metrics import LatencyMetrics
from service.clock import SystemClock
from store.repositories import history
from store.repositories.history import STEPS, Figures
from store.session import Database
from tests.integration.gateway.conftest import MODEL, Online

SERIES = ("ttft:online", "tbt:online", "engine", "beside:tbt", "apart:tbt")
URL = "http://engine:1"


async def sums(database: Database, step_s: int) -> dict[tuple[str, str], list[float]]:
    """By series and subject, over all steps of a length."""
    found: dict[tuple[str, str], list[float]] = defaultdict(list)
    async with database.unit_of_work() as session:
        for point in await history.points(session, step_s, span_s=10**6, series=SERIES):
            known = found[point.series, point.subject]
            found[point.series, point.subject] = [
                a + b for a, b in zip_longest(known, point.figures, fillvalue=0.0)
            ]
    return dict(found)


def report(online_tokens: int, offline_tokens: int, **more: Any) -> dict[str, Any]:
    return {"steps": online_tokens, "online_tokens": online_tokens,
            "offline_tokens": offline_tokens, **more}  # fmt: skip


def engine(figures: Sequence[float], name: str) -> float:
    return figures[EngineTime._fields.index(name)]


async def test_it_says_what_metrics_say(online: Online, database: Database) -> None:
    recorder, pool = online.app.state.history, online.app.state.engines
    slo = {"slo": {"ttft_s": 30.0, "tbt_s": 0.004}}
    online.engine.report = report(100, 1000, **slo)
    await pool.probe()
    assert await recorder.write(), "an engine that is seen for the first time has no history"
    async with online.http() as http:
        for number in range(30):
            body = online.chat(f"fake:tokens=6 fake:token_ms={number % 5 * 2}", stream=True)
            assert (await http.post("/v1/chat/completions", json=body)).status_code == 200
            if number % 10 == 0:
                assert await recorder.write()
        online.engine.report = report(400, 3000, **slo)
        await pool.probe()
        assert await recorder.write()
        said = (await http.get("/metrics")).text
    metrics = {n: float(v) for n, v in re.findall(r"^(coserve_\S+) (\S+)$", said, re.M)}
    labels = f'model="{MODEL}",request_class="online"'
    found = await sums(database, 10)
    for of in ("ttft", "tbt"):
        met, missed, sum_s, *counts = found[f"{of}:online", MODEL]
        told = f'{{model="{MODEL}",of="{of}"}}'
        assert met == pytest.approx(metrics[f"coserve_target_met_total{told}"], rel=0.01)
        assert missed == pytest.approx(metrics[f"coserve_target_missed_total{told}"], rel=0.01)
        assert sum_s == pytest.approx(metrics[f"coserve_{of}_seconds_sum{{{labels}}}"], rel=0.01)
        for at, edge in enumerate(EDGES_S):
            name = f'coserve_{of}_seconds_bucket{{le="{edge}",{labels}}}'
            assert sum(counts[: at + 1]) == pytest.approx(metrics[name], rel=0.01)
    figures = found["engine", pool.members[0].url]
    assert engine(figures, "online_tokens") == 300
    assert engine(figures, "harvested_tokens") == 2000
    for step_s in (60, 600, 7200):
        assert await sums(database, step_s) == {
            key: pytest.approx(figures) for key, figures in found.items()
        }


class Pool:
    """Engines that say what a test wants."""

    def __init__(self) -> None:
        self.totals = report(0, 0)
        self.up = True
        self.draining = False

    def members(self) -> list[Any]:
        facts = EngineFacts("m", 2048, raw={"coserve": self.totals})
        return [SimpleNamespace(url=URL, facts=facts, up=self.up, draining=self.draining)]


def recorder(database: Database, pool: Pool) -> HistoryRecorder:
    return HistoryRecorder(database, LatencyMetrics(), pool.members, SystemClock())


async def test_of_two_gateways_one_writes_and_the_other_takes_over(database: Database) -> None:
    pool = Pool()
    first, second = recorder(database, pool), recorder(database, pool)
    for tokens in (0, 10, 20):
        pool.totals = report(tokens, 0)
        assert await first.write()
        assert await second.write()
    found = (await sums(database, 10))["engine", URL]
    assert engine(found, "online_tokens") == 20
    assert engine(found, "asked") == 3, "the second one wrote nothing"
    pool.totals = report(25, 0)
    await first.write(last=True)
    pool.totals = report(32, 0)
    await second.write()
    assert engine((await sums(database, 10))["engine", URL], "online_tokens") == 32


async def test_a_silent_writer_loses_its_place(database: Database) -> None:
    pool = Pool()
    first, second = recorder(database, pool), recorder(database, pool)
    await first.write()
    async with database.unit_of_work() as session:
        await session.execute(
            text("UPDATE history_writers SET beat_at = beat_at - interval '31 seconds'")
        )
    pool.totals = report(7, 0)
    await second.write()
    pool.totals = report(9, 0)
    await first.write()
    assert engine((await sums(database, 10))["engine", URL], "online_tokens") == 7


async def test_an_engine_that_began_anew_is_counted_from_zero(database: Database) -> None:
    pool = Pool()
    one = recorder(database, pool)
    for tokens in (50, 80, 5, 9):
        pool.totals = report(tokens, 0)
        await one.write()
    pool.up, pool.draining = False, True
    await one.write()
    found = (await sums(database, 10))["engine", URL]
    assert engine(found, "online_tokens") == 30 + 5 + 4
    assert (engine(found, "asked"), engine(found, "up")) == (5, 4)
    assert (engine(found, "restarts"), engine(found, "draining")) == (1, 1)


async def test_a_long_time_without_a_writer_is_a_gap_and_no_peak(database: Database) -> None:
    pool = Pool()
    one = recorder(database, pool)
    await one.write()
    async with database.unit_of_work() as session:
        await session.execute(
            text("UPDATE history_writers SET seen = jsonb_set(seen, '{at_s}', '5')")
        )
    pool.totals = report(10**6, 0)
    await one.write()
    assert engine((await sums(database, 10))["engine", URL], "online_tokens") == 0


async def test_what_is_older_than_its_steps_are_kept_is_forgotten(database: Database) -> None:
    async with database.unit_of_work() as session:
        await history.add(session, [Figures("engine", URL, [1.0])])
        await session.execute(
            text(
                "INSERT INTO history_points SELECT step_s, began_at - make_interval(secs => ago),"
                " series, subject, figures FROM history_points,"
                " unnest(ARRAY[3000, 80000, 1000000, 1300000]) AS ago"
            )
        )
        await history.collect(session)
        query = "SELECT step_s, count(*) FROM history_points GROUP BY step_s"
        kept = {row[0]: row[1] for row in await session.execute(text(query))}
    assert kept == {10: 2, 60: 3, 600: 4, 7200: 4}
    assert max(kept_s / step_s for step_s, kept_s in STEPS.items()) <= 2016


async def test_a_lost_database_is_written_to_later(database: Database) -> None:
    pool, latency = Pool(), LatencyMetrics()
    lost = Database("postgresql+psycopg://app@127.0.0.1:1/app")
    one = HistoryRecorder(lost, latency, pool.members, SystemClock())
    latency.of("m", "online").ttft.add(0.5, 1.0)
    assert not await one.write()
    one._database = database
    assert await one.write()
    assert (await sums(database, 10))["ttft:online", "m"][0] == 1


async def add_steps(database: Database, lengths: dict[str, int]) -> None:
    """Ten-minute steps of two subjects, with gaps, and with figures that not all have."""
    chance = random.Random(3)
    statement = text(
        "INSERT INTO history_points VALUES (600, to_timestamp((floor(extract(epoch FROM"
        " statement_timestamp()) / 600) - :ago) * 600), :series, :subject,"
        " CAST(:figures AS float8[]))"
    )
    steps = [
        {"ago": ago, "series": series, "subject": subject,
         "figures": [chance.uniform(0, 9) for _ in range(length - ago % 2)]}
        for ago in range(40) if ago % 7
        for series, length in lengths.items()
        for subject in ("a", "b")
    ]  # fmt: skip
    async with database.unit_of_work() as session:
        await session.execute(statement, steps)


async def test_the_database_adds_up_models_and_leaves_engines_apart(database: Database) -> None:
    assert max(len(EngineTime._fields), NUM_OF_DISTRIBUTION) <= history.MAX_FIGURES
    lengths = {
        "engine": len(EngineTime._fields),
        "ttft:online": NUM_OF_DISTRIBUTION,
        "tbt:online": 7,
    }
    await add_steps(database, lengths)
    span = CHART_SPANS["24h"]
    async with database.unit_of_work() as session:
        single = await history.points(session, 600, span_s=span.span_s, series=[*lengths])
        found = await read(session, span, [*lengths])
    told = {moment.at_s: moment for moment in found.moments}
    assert len(told) == 40 - 1, "gaps are moments too, but for the newest"
    for one in single:
        moment = told[one.at_s]
        if one.series == "engine":
            assert [*moment.engines[one.subject]][: len(one.figures)] == one.figures
        else:
            parts = [p.figures for p in single if (p.at_s, p.series) == (one.at_s, one.series)]
            together = [sum(column) for column in zip(*parts, strict=True)]
            assert moment.of(one.series).figures == pytest.approx(together)
