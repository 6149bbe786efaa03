"""Steering a batch that fills the real engine: harvest, newcomers, pause and resume.

One batch of 10,000 short requests keeps the engine full: the default model, the real dispatcher and
Postgres. Then, one after the other: results per second, with a queue behind the engine of
`QUEUE_S` and with one as long as places go, in turns; another project's one-line batch; a batch of
20 lines of the same project; a pause of the large batch, and its resume.

    python -m bench.steering [--harvest-s 45] [--profiles FOLDER]

Quoted in docs/benchmark-batch.md.
"""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path
from typing import Any
from unittest.mock import patch

import orjson
import uvloop
from sqlalchemy import text

from batch.files.local import LocalFileStore
from batch.run import window
from batch.steer import pause, resume
from bench.batches import add_batch, dispatcher
from bench.coserve_bench.engine_run import running_engine
from bench.coserve_bench.systems import find_system
from bench.paths import ENGINE_PYTHON, MODEL_DIR
from bench.report import Target, at_least, at_most, option_parser, report, scratch_folder
from bench.servers import postgres_url
from engine_adapter.client.base import CHAT_PATH
from engine_adapter.client.http import HttpEngineClient
from engine_adapter.engine_process import EngineSettings
from store.models import DEFAULT_PROJECT_ID
from store.session import Database

NUM_ROWS = 10_000
ANSWER_TOKENS = 16
WARM_RESULTS = 64
PAUSED_S = 10.0
EMPTY_S = 6.0
LONG_QUEUE_S = 3600.0
TURNS = (window.QUEUE_S, LONG_QUEUE_S, LONG_QUEUE_S, window.QUEUE_S)
LIMIT_S = 300.0
TARGETS: dict[str, Target] = {
    "newcomer_s": at_most(5.0),
    "last_result_after_pause_s": at_most(2.0),
    "harvest_beside_long_queue": at_least(0.98),
}


def lines(num_rows: int, word: str, answer_tokens: int) -> bytes:
    """Requests of about 40 prompt tokens; answers of exactly so many."""
    made = []
    for number in range(num_rows):
        question = f"{word} {number}: tell me something about the number {number * 7919}, please."
        messages = [{"role": "user", "content": question}]
        body: dict[str, Any] = {"model": MODEL_DIR.name, "messages": messages}
        body |= {"max_tokens": answer_tokens, "temperature": 0, "ignore_eos": True}
        shape = {"custom_id": f"{word}-{number}", "method": "POST", "url": CHAT_PATH}
        made.append(orjson.dumps({**shape, "body": body}))
    return b"".join(one + b"\n" for one in made)


class Batches:
    """The database's view of the batches."""

    def __init__(self, database: Database, store: LocalFileStore) -> None:
        self.database = database
        self._store = store
        self._num_files = 0

    async def add(self, data: bytes, project_id: str = DEFAULT_PROJECT_ID) -> str:
        """A validated batch of a project; its id."""
        self._num_files += 1
        batch_id = await add_batch(self.database, self._store, data, self._num_files)
        await self.write(
            "INSERT INTO projects (id, name) VALUES (CAST(:p AS text), CAST(:p AS text))"
            " ON CONFLICT DO NOTHING",
            p=project_id,
        )
        await self.write(
            "UPDATE batches SET project_id = :p WHERE id = :id", p=project_id, id=batch_id
        )
        return batch_id

    async def write(self, statement: str, **values: object) -> None:
        async with self.database.unit_of_work() as session:
            await session.execute(text(statement), values)

    async def read(self, statement: str, **values: object) -> Any:
        async with self.database.unit_of_work() as session:
            return await session.scalar(text(statement), values)

    async def num_done(self, batch_id: str) -> int:
        return int(await self.read("SELECT num_completed FROM batches WHERE id = :id", id=batch_id))

    async def until_done(self, batch_id: str, num: int) -> float:
        """Wait until so many lines are answered; how long that took."""
        loop = asyncio.get_running_loop()
        began_s = loop.time()
        async with asyncio.timeout(LIMIT_S):
            while await self.num_done(batch_id) < num:  # noqa: ASYNC110 - another process's work
                await asyncio.sleep(0.05)
        return loop.time() - began_s


async def harvest(seen: Batches, big: str, harvest_s: float) -> dict[float, float]:
    """Results per second with each length of the queue; each turn begins at an empty engine."""
    harvested = dict.fromkeys(TURNS, 0.0)
    for queue_s in TURNS:
        with patch.object(window, "QUEUE_S", queue_s):
            async with seen.database.unit_of_work() as session:
                await pause(session, DEFAULT_PROJECT_ID, big)
            await asyncio.sleep(EMPTY_S)
            async with seen.database.unit_of_work() as session:
                await resume(session, DEFAULT_PROJECT_ID, big)
            await seen.until_done(big, await seen.num_done(big) + WARM_RESULTS)
            before = await seen.num_done(big)
            await asyncio.sleep(harvest_s)
            rate = (await seen.num_done(big) - before) / harvest_s
        harvested[queue_s] += rate / TURNS.count(queue_s)
        print(f"  queue of {queue_s:g} s: {rate:.2f} results/s", flush=True)
    return harvested


async def steer(seen: Batches, harvest_s: float) -> dict[str, Any]:
    """Everything that is measured, while a dispatcher runs."""
    big = await seen.add(lines(NUM_ROWS, "big", ANSWER_TOKENS))
    await seen.until_done(big, 1)
    harvested = await harvest(seen, big, harvest_s)
    newcomers = []
    for number in range(3):
        one = await seen.add(lines(1, f"one{number}", 1), "proj_other")
        newcomers.append(round(await seen.until_done(one, 1), 2))
    print(f"  newcomers {newcomers} s", flush=True)
    small = await seen.add(lines(20, "small", ANSWER_TOKENS))
    small_s = await seen.until_done(small, 20)
    print(f"  20 lines behind {NUM_ROWS}: {small_s:.1f} s", flush=True)
    async with seen.database.unit_of_work() as session:
        await pause(session, DEFAULT_PROJECT_ID, big)
    paused_at = await seen.read("SELECT paused_at FROM batches WHERE id = :id", id=big)
    await asyncio.sleep(PAUSED_S)
    late_s = await seen.read(
        "SELECT extract(epoch FROM max(created_at) - :at)::float8 FROM row_results"
        " WHERE batch_id = :id",
        at=paused_at, id=big,
    )  # fmt: skip
    while_paused = await seen.num_done(big)
    num_pending = await seen.read(
        "SELECT count(*) FROM batch_rows WHERE batch_id = :id AND status = 'pending'"
        " AND attempt = 0",
        id=big,
    )
    async with seen.database.unit_of_work() as session:
        await resume(session, DEFAULT_PROJECT_ID, big)
    resumed_s = await seen.until_done(big, while_paused + 50)
    return {
        "results_per_s": round(harvested[window.QUEUE_S], 3),
        "results_per_s_long_queue": round(harvested[LONG_QUEUE_S], 3),
        "harvest_beside_long_queue": round(harvested[window.QUEUE_S] / harvested[LONG_QUEUE_S], 3),
        "newcomer_s": max(newcomers),
        "newcomers_s": newcomers,
        "twenty_lines_same_project_s": round(small_s, 1),
        "last_result_after_pause_s": round(max(0.0, late_s), 2),
        "rows_lost_by_pause": NUM_ROWS - while_paused - num_pending,
        "fifty_results_after_resume_s": round(resumed_s, 1),
    }


async def measure(url: str, folder: Path, profiles: str, harvest_s: float) -> dict[str, Any]:
    """Start engine and dispatcher, steer, stop."""
    settings = EngineSettings(python=ENGINE_PYTHON, model_dir=MODEL_DIR, port=0)
    env = {"COSERVE_HOME": str(folder), "COSERVE_PROFILE_DIR": profiles}
    database, store = Database(url, pool_size=6), LocalFileStore(folder / "files")
    drain = asyncio.Event()
    async with running_engine(settings, find_system("conserve-v2"), env, folder / "log") as engine:
        client = HttpEngineClient(engine.url)
        task = asyncio.ensure_future(_dispatch(client, database, store, drain))
        try:
            return await steer(Batches(database, store), harvest_s)
        finally:
            drain.set()
            await task
            await client.close()
            await database.dispose()


async def _dispatch(
    client: HttpEngineClient, database: Database, store: LocalFileStore, drain: asyncio.Event
) -> None:
    """Dispatchers one after the other: one that finds nothing to do for a second ends."""
    while not drain.is_set():
        await (await dispatcher(client, database, store, drain=drain)).run()


def main() -> int:
    """Start Postgres and the engine, measure, report."""
    parser = option_parser(__doc__)
    parser.add_argument("--harvest-s", type=float, default=45.0)
    parser.add_argument("--profiles", help="where measured profiles are kept")
    options = parser.parse_args()
    with (
        scratch_folder() as folder,
        postgres_url(folder) as url,
        asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner,
    ):
        profiles = options.profiles or str(folder / "profiles")
        measured = runner.run(measure(url, folder, profiles, options.harvest_s))
    return report("steering", measured, TARGETS)


if __name__ == "__main__":
    sys.exit(main())
