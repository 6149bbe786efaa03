"""What ordering a batch by shared beginnings gains: tokens/s in prefix order against file order.

64 groups of requests share 512 tokens each and come shuffled; the KV cache has room for 16 groups.
One real engine with the default model, the real dispatcher, validation and Postgres. Both orders
run in turns on the same engine, its cache emptied before each; "file order" is the same batch with
the order's column set to zero.

    python -m bench.prefix_order [--rows-per-group 3] [--repeats 1]

Quoted in docs/benchmark-batch.md.
"""

from __future__ import annotations

import asyncio
import random
import subprocess
import sys
from pathlib import Path
from statistics import median
from typing import Any

import aiohttp
import orjson
import uvloop
from sqlalchemy import text

from batch.files.local import LocalFileStore
from bench.batches import add_batch, dispatcher
from bench.coserve_bench.engine_run import RunningEngine, running_engine
from bench.coserve_bench.systems import find_system
from bench.paths import ENGINE_PYTHON, MODEL_DIR
from bench.report import at_least, option_parser, report, scratch_folder
from bench.servers import postgres_url
from engine_adapter.client.base import CHAT_PATH
from engine_adapter.client.http import HttpEngineClient
from engine_adapter.engine_process import EngineSettings
from store.repositories import batch as batches
from store.session import Database

NUM_GROUPS = 64
SHARED_TOKENS = 512
CACHED_GROUPS = 16
OWN_TOKENS = 64
"""Room for what a row adds to its group's tokens: question, chat template, answer."""

ANSWER_TOKENS = 8
MAX_RUNNING = 8
TARGET_SPEEDUP = 1.3

_CUT = """
import json, sys
from tokenizers import Tokenizer
tokenizer = Tokenizer.from_file(sys.argv[1])
cut = []
for text in json.load(sys.stdin):
    offsets = tokenizer.encode(text, add_special_tokens=False).offsets
    assert len(offsets) >= int(sys.argv[2])
    cut.append(text[:offsets[int(sys.argv[2]) - 1][1]])
json.dump(cut, sys.stdout)
"""
_WORDS = (
    "time year people way day man thing woman life child world school state family student group "
    "country problem hand part place case week company system program question work government "
    "number night point home water room mother area money story fact month lot right study book "
    "eye job word business issue side kind head house service friend father power hour game line "
    "end member law car city community name president team minute idea body information back"
)


def shared_texts() -> list[str]:
    """One text of exactly `SHARED_TOKENS` tokens per group, different from its first words on."""
    rng = random.Random(1)
    long = [" ".join(rng.choices(_WORDS.split(), k=SHARED_TOKENS)) for _ in range(NUM_GROUPS)]
    tokenizer = MODEL_DIR / "tokenizer.json"
    done = subprocess.run(
        [ENGINE_PYTHON, "-c", _CUT, tokenizer, str(SHARED_TOKENS)],
        input=orjson.dumps(long),
        capture_output=True,
        check=True,
    )
    cut: list[str] = orjson.loads(done.stdout)
    return cut


def lines(rows_per_group: int) -> list[bytes]:
    """The batch's lines, shuffled."""
    made = []
    for group, shared in enumerate(shared_texts()):
        for number in range(rows_per_group):
            messages = [
                {"role": "system", "content": shared},
                {"role": "user", "content": f"Question {number}: what comes after {number}?"},
            ]
            body = {"model": MODEL_DIR.name, "messages": messages, "max_tokens": ANSWER_TOKENS}
            body |= {"temperature": 0, "ignore_eos": True}
            shape = {"custom_id": f"{group}/{number}", "method": "POST", "url": CHAT_PATH}
            made.append(orjson.dumps({**shape, "body": body}))
    random.Random(7).shuffle(made)
    return made


async def run_batch(
    database: Database, store: LocalFileStore, engine: RunningEngine, batch_id: str
) -> dict[str, float]:
    """Dispatch one batch to its end; its tokens per second and share of cached prompt tokens."""
    client = HttpEngineClient(engine.url)
    dispatching = await dispatcher(client, database, store)
    begun = await _now_s(database)
    ending = await dispatching.run()
    await client.close()
    async with database.unit_of_work() as session:
        found = await session.execute(
            text(
                "SELECT extract(epoch FROM max(created_at))::float8 AS ended,"
                " sum(prompt_tokens) AS prompt, sum(cached_tokens) AS cached,"
                " sum(completion_tokens) AS completion, count(*) AS num_rows"
                " FROM row_results WHERE batch_id = :id"
            ),
            {"id": batch_id},
        )
    row = found.one()
    batch = await _read(database, batch_id)
    assert batch == (row.num_rows, 0) == (ending.num_written, 0), batch
    elapsed_s = row.ended - begun
    return {
        "tokens_per_s": round((row.prompt + row.completion) / elapsed_s, 1),
        "cached_share": round(row.cached / row.prompt, 3),
        "elapsed_s": round(elapsed_s, 1),
        "prompt_tokens_per_row": round(row.prompt / row.num_rows, 1),
    }


async def _now_s(database: Database) -> float:
    async with database.unit_of_work() as session:
        found = await session.scalar(text("SELECT extract(epoch FROM clock_timestamp())::float8"))
    assert found is not None
    return float(found)


async def _read(database: Database, batch_id: str) -> tuple[int, int]:
    async with database.unit_of_work() as session:
        batch = await batches.find(session, batch_id)
    assert batch is not None
    return batch.num_completed, batch.num_failed


async def _flush_cache(engine: RunningEngine) -> None:
    async with aiohttp.ClientSession() as session:
        # Refused while a request is live; the last one may just be leaving.
        for _ in range(50):
            async with session.post(f"{engine.url}/flush_cache") as answer:
                if answer.status == 200:
                    return
            await asyncio.sleep(0.2)
    raise RuntimeError("the engine's cache cannot be emptied")


async def measure(url: str, folder: Path, rows_per_group: int, repeats: int) -> dict[str, Any]:
    """Both orders in turns; figures of every run and the median of the ratios of neighbours."""
    data = b"".join(one + b"\n" for one in lines(rows_per_group))
    settings = EngineSettings(
        python=ENGINE_PYTHON,
        model_dir=MODEL_DIR,
        port=0,
        kv_tokens=CACHED_GROUPS * (SHARED_TOKENS + OWN_TOKENS),
        max_running=MAX_RUNNING,
    )
    env = {"COSERVE_HOME": str(folder)}
    database, store = Database(url, pool_size=4), LocalFileStore(folder / "files")
    runs: dict[str, list[dict[str, float]]] = {"file_order": [], "prefix_order": []}
    async with running_engine(settings, find_system("conserve-v2"), env, folder / "log") as engine:
        for repeat in range(repeats):
            order = ["file_order", "prefix_order"]
            for name in order if repeat % 2 == 0 else reversed(order):
                number = sum(len(done) for done in runs.values())
                batch_id = await add_batch(database, store, data, number)
                if name == "file_order":
                    async with database.unit_of_work() as session:
                        await session.execute(
                            text("UPDATE batch_rows SET prefix_hash = 0 WHERE batch_id = :id"),
                            {"id": batch_id},
                        )
                await _flush_cache(engine)
                runs[name].append(await run_batch(database, store, engine, batch_id))
                print(f"  {name}: {runs[name][-1]}", flush=True)
    await database.dispose()
    ratios = [
        prefix["tokens_per_s"] / file["tokens_per_s"]
        for file, prefix in zip(runs["file_order"], runs["prefix_order"], strict=True)
    ]
    return {
        "speedup": round(median(ratios), 2),
        "speedup_of_each_repeat": [round(ratio, 2) for ratio in ratios],
        "num_groups": NUM_GROUPS,
        "rows_per_group": rows_per_group,
        "shared_tokens": SHARED_TOKENS,
        "answer_tokens": ANSWER_TOKENS,
        "kv_tokens": settings.kv_tokens,
        "max_running": MAX_RUNNING,
        "model": MODEL_DIR.name,
        **runs,
    }


def main() -> int:
    """Start Postgres and the engine, measure, report."""
    parser = option_parser(__doc__)
    parser.add_argument("--rows-per-group", type=int, default=3)
    parser.add_argument("--repeats", type=int, default=1)
    options = parser.parse_args()
    with (
        scratch_folder() as folder,
        postgres_url(folder) as url,
        asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner,
    ):
        measured = runner.run(measure(url, folder, options.rows_per_group, options.repeats))
    return report("prefix_order", measured, {"speedup": at_least(TARGET_SPEEDUP)})


if __name__ == "__main__":
    sys.exit(main())
