"""Chat beside a batch at an engine that is not ours: a real vLLM on the CPU.

Chat comes through the gateway at random, twice in three seconds or so, always at the same instants.
Beside it are rows of a batch: none, all that there is at once, always eight, and by coserve's
dispatcher, whose targets are 1.5 times the P99 of chat alone. vLLM schedules by priority in all of
them; rows that are sent raw have none.

    make setup-vllm
    python -m bench.foreign_engine [--seconds 60]

Quoted in docs/other-engines.md.
"""

from __future__ import annotations

import asyncio
import random
import statistics
import sys
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import httpx
import orjson
from sqlalchemy import text

from batch.files.local import LocalFileStore
from bench.batches import add_batch, dispatcher
from bench.report import Target, at_least, at_most, at_share, option_parser, report, scratch_folder
from bench.servers import postgres_url, valkey_url
from engine_adapter.client.base import CHAT_PATH
from engine_adapter.client.http import HttpEngineClient
from gateway.settings import GatewaySettings
from store.session import Database
from tests.fixtures.online import Gateway, running_gateway
from tests.fixtures.vllm import MODEL, Vllm, running_vllm

CHAT_EVERY_S: Final = 1.5
CHAT_TOKENS: Final = 16
ROW_TOKENS: Final = 24
RAW: Final = 64
FIXED: Final = 8
NUM_ROWS: Final = 5000
WARM_S: Final = 5.0
MARGIN: Final = 1.5
TARGETS: dict[str, Target] = {
    "ours_ttft_p99_over_alone": at_most(1.5),
    "ours_gap_p99_over_alone": at_most(1.5),
    "ours_rows_over_raw": at_least(0.6),
}


@dataclass
class Got:
    """What chat got, and how many rows were answered meanwhile."""

    ttft_s: list[float] = field(default_factory=list)
    gaps_s: list[float] = field(default_factory=list)
    rows_per_min: float = 0.0
    num_failed: int = 0

    def seconds(self) -> dict[str, float]:
        """First tokens and gaps at the median and the 99th percentile."""
        return {
            "ttft_p50_s": statistics.median(self.ttft_s),
            "ttft_p99_s": at_share(self.ttft_s, 0.99),
            "gap_p50_s": statistics.median(self.gaps_s),
            "gap_p99_s": at_share(self.gaps_s, 0.99),
        }

    def show(self, name: str) -> None:
        """Print a line of it."""
        ms = {figure: 1000 * value for figure, value in self.seconds().items()}
        print(
            f"  {name:8} first token P50 {ms['ttft_p50_s']:.0f} ms, P99 {ms['ttft_p99_s']:.0f}; "
            f"gap P50 {ms['gap_p50_s']:.0f}, P99 {ms['gap_p99_s']:.0f}; "
            f"{self.rows_per_min:.0f} rows a minute; "
            f"{len(self.ttft_s)} chats, {self.num_failed} failed",
            flush=True,
        )


def body_of(prompt: str, tokens: int) -> dict[str, Any]:
    """A request whose answer has exactly so many tokens."""
    messages = [{"role": "user", "content": prompt}]
    return {"model": MODEL, "messages": messages, "max_tokens": tokens, "ignore_eos": True}


def row(number: int) -> dict[str, Any]:
    words = " ".join(f"{(number * 7919 + k) % 9973}" for k in range(24))
    return body_of(f"Row {number}: sort these numbers: {words}.", ROW_TOKENS)


async def one_chat(http: httpx.AsyncClient, number: int, got: Got) -> None:
    """One streamed chat request, its first token and its gaps."""
    body = body_of(f"Question {number}: what is {number} and why?", CHAT_TOKENS) | {"stream": True}
    last_s = time.monotonic()
    num_texts = 0
    async with http.stream("POST", CHAT_PATH, json=body) as answer:
        if answer.status_code != 200:
            got.num_failed += 1
            return
        async for line in answer.aiter_lines():
            if not line.startswith("data: {"):
                continue
            choices = orjson.loads(line[6:])["choices"]
            if not choices or not choices[0]["delta"].get("content"):
                continue
            now_s = time.monotonic()
            (got.gaps_s if num_texts else got.ttft_s).append(now_s - last_s)
            num_texts, last_s = num_texts + 1, now_s


async def chat(online: Gateway, seconds: float, got: Got) -> None:
    """Chat at random instants, the same in each run."""
    draw = random.Random(1)
    async with online.http() as http, asyncio.TaskGroup() as group:
        until_s, number = time.monotonic() + seconds, 0
        while time.monotonic() < until_s:
            number += 1
            group.create_task(one_chat(http, number, got))
            await asyncio.sleep(draw.expovariate(1 / CHAT_EVERY_S))


@dataclass
class Rows:
    """Rows that are answered."""

    num: int = 0


@asynccontextmanager
async def sent_raw(url: str, at_once: int, rows: Rows) -> AsyncIterator[None]:
    """Rows straight to vLLM, always so many at once."""
    numbers = iter(range(NUM_ROWS))

    async def sender(http: httpx.AsyncClient) -> None:
        for number in numbers:
            answer = await http.post(url + CHAT_PATH, json=row(number))
            rows.num += answer.status_code == 200

    limits = httpx.Limits(max_connections=at_once + 1)
    async with httpx.AsyncClient(timeout=600, limits=limits) as http:
        tasks = [asyncio.ensure_future(sender(http)) for _ in range(at_once)]
        try:
            yield
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)


@asynccontextmanager
async def dispatched(database: Database, store: LocalFileStore, url: str) -> AsyncIterator[None]:
    """A batch of as many rows, by our dispatcher."""
    shapes = [
        {"custom_id": f"r{n}", "method": "POST", "url": CHAT_PATH, "body": row(n)}
        for n in range(NUM_ROWS)
    ]
    await add_batch(database, store, b"".join(orjson.dumps(one) + b"\n" for one in shapes), 1)
    client, drain = HttpEngineClient(url), asyncio.Event()
    dispatching = await dispatcher(client, database, store, drain=drain)
    task = asyncio.ensure_future(dispatching.run())
    sizes: list[tuple[int, int]] = []

    async def watch() -> None:
        while True:
            counts = dispatching.counts()
            sizes.append((counts.window_rows, counts.num_in_flight))
            await asyncio.sleep(1.0)

    watching = asyncio.ensure_future(watch())
    try:
        yield
    finally:
        watching.cancel()
        print("  bound and rows there, each second:", sizes, flush=True)
        print(f"  taken off for chat: {dispatching.counts().num_handed_back}", flush=True)
        drain.set()
        await task
        await client.close()


async def num_results(database: Database) -> int:
    async with database.unit_of_work() as session:
        return int(await session.scalar(text("SELECT count(*) FROM row_results")) or 0)


async def measure(vllm: Vllm, database_url: str, broker: str, folder: Path, seconds: float) -> Any:
    """All runs, one after the other, at one vLLM."""
    database, store = Database(database_url, pool_size=6), LocalFileStore(folder / "files")
    targets: dict[str, Any] = {}

    async def run(name: str, at_once: int = 0, *, ours: bool = False) -> Got:
        settings = GatewaySettings(
            database_url=database_url,
            broker_url=broker,
            engine_urls=vllm.url,
            home=folder,
            **targets,
        )
        got, rows = Got(), Rows()
        async with running_gateway(database, settings, MODEL) as online:
            if ours:
                work = dispatched(database, store, vllm.url)
            else:
                work = sent_raw(vllm.url, at_once, rows)
            async with work:
                await chat(online, WARM_S, Got())
                before = await num_results(database) if ours else rows.num
                began_s = time.monotonic()
                await chat(online, seconds, got)
                after = await num_results(database) if ours else rows.num
                got.rows_per_min = 60 * (after - before) / (time.monotonic() - began_s)
        got.show(name)
        return got

    try:
        found = {"alone": await run("alone")}
        alone = found["alone"].seconds()
        targets["ttft_ms"] = 1000 * MARGIN * alone["ttft_p99_s"]
        targets["tbt_ms"] = 1000 * MARGIN * alone["gap_p99_s"]
        found["ours"] = await run("ours", ours=True)
        found["raw"] = await run("raw", RAW)
        found["fixed"] = await run("fixed", FIXED)
    finally:
        await database.dispose()
    return told(found)


def told(found: dict[str, Got]) -> dict[str, Any]:
    """Figures of every run, and those of chat over chat alone, of rows over rows sent raw."""
    alone, raw = found["alone"].seconds(), max(1.0, found["raw"].rows_per_min)
    measured: dict[str, Any] = {}
    for name, got in found.items():
        seconds = got.seconds()
        measured |= {
            **{f"{name}_{figure}": round(value, 4) for figure, value in seconds.items()},
            f"{name}_rows_per_min": round(got.rows_per_min, 1),
            f"{name}_chats": len(got.ttft_s),
        }
        if name != "alone":
            for figure in ("ttft_p99", "gap_p99"):
                ratio = seconds[f"{figure}_s"] / alone[f"{figure}_s"]
                measured[f"{name}_{figure}_over_alone"] = round(ratio, 3)
    for name in ("ours", "fixed"):
        measured[f"{name}_rows_over_raw"] = round(found[name].rows_per_min / raw, 3)
    return measured


def main() -> int:
    parser = option_parser(__doc__)
    parser.add_argument("--seconds", type=float, default=60.0)
    options = parser.parse_args()
    with (
        scratch_folder() as folder,
        postgres_url(folder) as url,
        valkey_url(folder) as broker,
        running_vllm(folder / "vllm.log", "--no-enable-prefix-caching") as vllm,
    ):
        measured = asyncio.run(measure(vllm, url, broker, folder, options.seconds))
    return report("foreign_engine", measured, TARGETS)


if __name__ == "__main__":
    sys.exit(main())
