"""Whatever becomes of the lines of a batch: each is told once, and what each cost is told.

Lines end in every way there is, in any mixture: answered, refused, never answered by the engine,
answered in no known form, cut by a dead connection, cancelled, out of time. Of a mixture of them no
line is missing, and none changes the tokens of another (row E-17).
"""

from __future__ import annotations

import asyncio
from typing import Any, Final

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from batch.finish.cancel import cancel
from batch.finish.finalize import finalize
from batch.run.dispatch import DispatchLimits
from engine_adapter.client.http import HttpEngineClient
from store.repositories import usage as usages
from store.session import Database
from tests.fixtures.batches import (
    Bench,
    add_batch,
    end_window,
    file_lines,
    line,
    read_batch,
    row_statuses,
    running,
    until,
)
from tests.fixtures.steered_engine import SteeredEngine

NEVER: Final = "fake:tokens=2 fake:token_ms=3600000"
GOOD = st.integers(1, 9).map(lambda number: f"fine {'word ' * number}fake:tokens={number}")
BAD = st.sampled_from([f"bad fake:status={status}" for status in (400, 404, 422, 500)])
LOST: Final = ("bad fake:tokens=5 fake:die_after=2", "bad fake:finish=abort")
"""The engine seems lost with them; they wait for one that is empty, so none may stay there."""

PROMPTS = st.one_of(
    st.lists(st.one_of(GOOD, BAD, st.sampled_from(LOST)), min_size=1, max_size=6),
    st.lists(st.one_of(GOOD, BAD, st.just(NEVER)), min_size=1, max_size=8),
)
ENDS: Final = {"cancel": "cancelled", "expire": "expired", "none": "completed"}


@pytest.mark.contract("E-17")
async def test_no_line_is_missing_and_none_costs_another(
    bench: Bench, engine: HttpEngineClient, fake_engine: SteeredEngine, database: Database
) -> None:
    loop = asyncio.get_running_loop()

    @settings(
        max_examples=12, deadline=None, database=None, suppress_health_check=list(HealthCheck)
    )
    @given(prompts=PROMPTS, end=st.sampled_from(["cancel", "expire"]))
    def run(prompts: list[str], end: str) -> None:
        asyncio.run_coroutine_threadsafe(example(prompts, end), loop).result()

    async def example(prompts: list[str], end: str) -> None:
        before = await _accounted(database)
        served_before = _served(fake_engine)
        lines = [line(f"row {n}", prompt) for n, prompt in enumerate(prompts)]
        batch_id = await add_batch(database, bench.file_store, lines)
        num_never = prompts.count(NEVER)
        limits = DispatchLimits(max_attempts=2)
        dispatcher = bench.dispatcher(await bench.lease(engine.url), engine, limits=limits)
        async with running(dispatcher) as task:
            if num_never:
                # All others are through: what is left is at the engine, and will not be answered.
                await _until_left(database, batch_id, num_never)
                await until(lambda: len(fake_engine.running) == num_never)
                if end == "expire":
                    await end_window(database, batch_id)
                else:
                    async with database.unit_of_work() as session:
                        await cancel(session, "proj_default", batch_id)
            await task
        await finalize(database, bench.file_store, batch_id)
        batch = await read_batch(database, batch_id)
        assert batch.status == ENDS[end if num_never else "none"]
        good: list[Any] = await file_lines(bench.file_store, batch.output_file_id)
        bad: list[Any] = await file_lines(bench.file_store, batch.error_file_id)
        wanted = {f"row {n}" for n, prompt in enumerate(prompts) if prompt.startswith("fine")}
        assert {one["custom_id"] for one in good} == wanted
        told = sorted(one["custom_id"] for one in good + bad)
        assert told == sorted(f"row {n}" for n in range(len(prompts))), "each line once"
        assert (batch.num_completed, batch.num_failed) == (len(good), len(bad))
        assert batch.num_total == len(prompts)
        used = [one["response"]["body"]["usage"] for one in good]
        assert batch.prompt_tokens == sum(one["prompt_tokens"] for one in used)
        assert batch.completion_tokens == sum(one["completion_tokens"] for one in used)
        for one in good:
            number = int(prompts[int(one["custom_id"].split()[1])].rpartition("=")[2])
            assert one["response"]["body"]["usage"]["completion_tokens"] == number
        # The project pays for what the engine served, but for answers that died on their way.
        paid = tuple(
            now - then for now, then in zip(await _accounted(database), before, strict=True)
        )
        served = tuple(
            now - then for now, then in zip(_served(fake_engine), served_before, strict=True)
        )
        if not any(prompt in LOST for prompt in prompts):
            assert paid == served
        assert batch.prompt_tokens <= paid[0] <= served[0]
        assert batch.completion_tokens <= paid[1] <= served[1]

    await asyncio.to_thread(run)


async def _until_left(database: Database, batch_id: str, number: int) -> None:
    async with asyncio.timeout(60):
        while True:
            statuses = list((await row_statuses(database, batch_id)).values())
            if sum(one in ("pending", "leased") for one in statuses) <= number:
                return
            await asyncio.sleep(0.01)


async def _accounted(database: Database) -> tuple[int, int]:
    async with database.unit_of_work() as session:
        rows = await usages.list_for(session, "proj_default")
    return sum(row.prompt_tokens for row in rows), sum(row.completion_tokens for row in rows)


def _served(engine: SteeredEngine) -> tuple[int, int]:
    total = engine.served.get("offline")
    return (0, 0) if total is None else (total.prompt_tokens, total.completion_tokens)
