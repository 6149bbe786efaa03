"""How the service grows: chat over gateways, batches over engines.

    python -m bench.scaling

One, two and four gateways, each with an engine of its own to fill, share one Postgres and one
Valkey; so do the dispatchers of one, two and four engines. Engines are fakes that set the pace, so
that throughput grows with their number for as long as the service can follow and cores are left.
CPU is that of gateways or workers, of Postgres and of Valkey, over the requests, less what they use
without any: where it stays, more cores do more.

Quoted in docs/deploy/sizing.md.
"""

from __future__ import annotations

import asyncio
import statistics
import sys
import time
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import aiohttp
from redis import Redis

from batch.settings import BatchSettings
from batch.worker.commands import beat_command, worker_commands
from bench.batches import line
from bench.processes import cpu_below_s, postgres_cpu_s, postgres_pid
from bench.report import at_least, report, scratch_folder
from bench.servers import (
    Server,
    fake_engine,
    gateway,
    new_key,
    postgres_url,
    quick_engine,
    started,
    valkey_url,
)
from store.session import Database

NUMBERS = (1, 2, 4)
LIMIT_S = 300.0

IDLE_S = 5.0
"""What all of it costs without a request is measured for so long, and taken off."""

PASSES, PASS_S, CALLERS = 2, 8.0, 8
STREAM = "fake:tokens=16 fake:token_ms=12"

ROWS, IN_FLIGHT, ROW_MS = 3000, 32, 100
TARGET_SHARE = 0.8


@dataclass(frozen=True)
class Shared:
    """What all parts share: a folder, a database, a broker, a key with limits."""

    folder: Path
    database_url: str
    broker_url: str
    postgres_pid: int
    broker: Redis
    key: str

    def cpu_s(self, pids: Sequence[int]) -> float:
        """CPU of these processes, all below them, Postgres and Valkey so far."""
        told = self.broker.info("cpu")
        broker_s = float(told["used_cpu_user"]) + float(told["used_cpu_sys"])
        return postgres_cpu_s(self.postgres_pid) + broker_s + cpu_below_s(pids)

    def gateways(self, stack: ExitStack, num: int, engines: Sequence[Server]) -> list[Server]:
        """So many before the same engines."""
        urls = ",".join(engine.url for engine in engines)
        places = self.folder, urls, self.database_url, self.broker_url, self.key
        return [stack.enter_context(gateway(*places)) for _ in range(num)]

    def workers(self, stack: ExitStack, engines: Sequence[Server]) -> list[int]:
        """The processes of the batch service, for these engines."""
        urls = ",".join(engine.url for engine in engines)
        env = {
            "DATABASE_URL": self.database_url,
            "BROKER_URL": self.broker_url,
            "ENGINE_URLS": urls,
            "COSERVE_HOME": str(self.folder),
            "COSERVE_BATCH_MAX_IN_FLIGHT": str(IN_FLIGHT),
        }
        settings, log = BatchSettings(), self.folder / "workers.log"
        commands = [*worker_commands(settings), beat_command(settings)]
        return [stack.enter_context(started(one.argv, log, env | one.env)).pid for one in commands]


async def chat(http: aiohttp.ClientSession, urls: Sequence[str], for_s: float) -> int:
    """`CALLERS` at each gateway call again and again; how many streams have ended."""
    until_s = time.monotonic() + for_s

    async def calls(url: str) -> int:
        num = 0
        body = {
            "model": "fake-model",
            "stream": True,
            "max_tokens": 64,
            "messages": [{"role": "user", "content": STREAM}],
        }
        while time.monotonic() < until_s:
            async with http.post(f"{url}/v1/chat/completions", json=body) as reply:
                assert (await reply.read()).endswith(b"data: [DONE]\n\n")
            num += 1
        return num

    return sum(await asyncio.gather(*(calls(url) for url in urls for _ in range(CALLERS))))


async def idle(shared: Shared, pids: Sequence[int]) -> float:
    """The share of a core that is used while nobody asks."""
    before_s, began_s = shared.cpu_s(pids), time.monotonic()
    await asyncio.sleep(IDLE_S)
    return (shared.cpu_s(pids) - before_s) / (time.monotonic() - began_s)


async def measure_chat(shared: Shared, num: int) -> dict[str, float]:
    """Streams through so many gateways."""
    headers = {"authorization": f"Bearer {shared.key}"}
    connector = aiohttp.TCPConnector(limit=0)
    async with aiohttp.ClientSession(headers=headers, connector=connector) as http:
        with ExitStack() as stack:
            engines = [stack.enter_context(fake_engine()) for _ in range(num)]
            gateways = shared.gateways(stack, num, engines)
            urls, pids = [one.url for one in gateways], [one.pid for one in gateways]
            await chat(http, urls, 2.0)
            idle_share = await idle(shared, pids)
            found = []
            for _ in range(PASSES):
                before_s, began_s = shared.cpu_s(pids), time.monotonic()
                num_calls = await chat(http, urls, PASS_S)
                took_s = time.monotonic() - began_s
                spent_s = shared.cpu_s(pids) - before_s - idle_share * took_s
                found.append((num_calls / took_s, spent_s / num_calls * 1e6))
    return {
        "per_s": statistics.median(rate for rate, _ in found),
        "cpu_us": statistics.median(cpu_us for _, cpu_us in found),
    }


async def run_batch(http: aiohttp.ClientSession, url: str, num_rows: int) -> float:
    """Upload, create, wait; how long its rows were answered, in seconds."""
    form = aiohttp.FormData({"purpose": "batch"})
    lines = b"\n".join(line(number) for number in range(num_rows))
    form.add_field("file", lines, filename="lines.jsonl")
    async with http.post(f"{url}/v1/files", data=form) as reply:
        file_id = (await reply.json())["id"]
    wanted = {
        "input_file_id": file_id,
        "endpoint": "/v1/chat/completions",
        "completion_window": "24h",
    }
    async with http.post(f"{url}/v1/batches", json=wanted) as reply:
        batch_id = (await reply.json())["id"]
    began_s, num_before = 0.0, 0
    async with asyncio.timeout(LIMIT_S):
        while True:
            async with http.get(f"{url}/v1/batches/{batch_id}") as reply:
                batch = await reply.json()
            if not began_s and batch["request_counts"]["completed"]:
                began_s = time.monotonic()
                num_before = int(batch["request_counts"]["completed"])
            if batch["status"] in ("finalizing", "completed"):
                assert batch["request_counts"]["completed"] == num_rows, batch
                took_s = time.monotonic() - began_s
                return took_s * num_rows / (num_rows - num_before)
            assert batch["status"] in ("validating", "in_progress"), batch
            await asyncio.sleep(0.1)


async def measure_batch(shared: Shared, num: int) -> dict[str, float]:
    """A batch whose rows go to so many engines; its second run counts."""
    headers = {"authorization": f"Bearer {shared.key}"}
    async with aiohttp.ClientSession(headers=headers) as http:
        with ExitStack() as stack:
            engines = [stack.enter_context(quick_engine(ROW_MS)) for _ in range(num)]
            (before,) = shared.gateways(stack, 1, engines)
            pids = shared.workers(stack, engines)
            await run_batch(http, before.url, 200 * num)  # every engine has its dispatcher
            idle_share = await idle(shared, pids)
            before_s, began_s = shared.cpu_s(pids), time.monotonic()
            took_s = await run_batch(http, before.url, ROWS * num)
            spent_s = shared.cpu_s(pids) - before_s
            spent_s -= idle_share * (time.monotonic() - began_s)
    return {"per_s": ROWS * num / took_s, "cpu_us": spent_s / (ROWS * num) * 1e6}


async def measure(folder: Path, database_url: str, broker_url: str) -> dict[str, Any]:
    """Both kinds of load on each number of parts."""
    key = await new_key(database_url, limited=True)
    database = Database(database_url)
    pid = await postgres_pid(database)
    await database.dispose()
    shared = Shared(folder, database_url, broker_url, pid, Redis.from_url(broker_url), key)
    measured: dict[str, Any] = {}
    for name, way in {"chat": measure_chat, "batch": measure_batch}.items():
        found = {num: await way(shared, num) for num in NUMBERS}
        alone = found[1]
        for num, told in found.items():
            measured[f"{name}_per_s_{num}"] = told["per_s"]
            measured[f"{name}_cpu_us_{num}"] = told["cpu_us"]
            if num > 1:
                measured[f"{name}_share_of_linear_{num}"] = told["per_s"] / (num * alone["per_s"])
                measured[f"{name}_cpu_kept_{num}"] = alone["cpu_us"] / told["cpu_us"]
        print(name, found, flush=True)
    shared.broker.close()
    return measured


def main() -> int:
    """Start the servers, measure, report."""
    with (
        scratch_folder() as folder,
        postgres_url(folder) as database,
        valkey_url(folder) as broker,
    ):
        measured = asyncio.run(measure(folder, database, broker))
    targets = {
        name: at_least(TARGET_SHARE)
        for name in measured
        if "_cpu_kept_" in name or "_share_of_linear_" in name
    }
    return report("scaling", measured, targets)


if __name__ == "__main__":
    sys.exit(main())
