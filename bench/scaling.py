"""How the service grows: chat over gateways, batches over engines: `python -m bench.scaling`.

One, two and four gateways, each with an engine of its own to fill, share one Postgres and one
Valkey; so do the dispatchers of one, two and four engines. Engines are fakes that set the pace, so
that throughput grows with their number for as long as the service can follow and cores are left.
CPU is that of gateways or workers, of Postgres and of Valkey, over the requests, less what they use
without any: where it stays, more cores do more.
"""

from __future__ import annotations

import asyncio
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import aiohttp
import psutil
from redis import Redis
from sqlalchemy import update

from batch.settings import BatchSettings
from batch.worker.commands import beat_command, worker_commands
from bench.batch_dispatch import line, postgres_cpu_s
from bench.report import at_least, report, scratch_folder
from bench.servers import postgres_url, stop, valkey_url
from coserve.local.ports import free_port
from store.models import DEFAULT_PROJECT_ID, ApiKey
from store.repositories import key as keys
from store.session import Database

NUMBERS = (1, 2, 4)
LIMIT_S = 300.0
NEVER_REACHED = 1_000_000_000

IDLE_S = 5.0
"""What all of it costs without a request is measured for so long, and taken off."""

PASSES, PASS_S, CALLERS = 2, 8.0, 8
STREAM = "fake:tokens=16 fake:token_ms=12"

ROWS, IN_FLIGHT, ROW_MS = 3000, 32, 100
TARGET_SHARE = 0.8


@dataclass(frozen=True)
class World:
    """What is shared: the environment of every process, the database, a key with limits."""

    env: dict[str, str]
    database: Database
    broker: Redis
    key: str

    async def cpu_s(self, processes: Sequence[subprocess.Popen[str]]) -> float:
        """CPU of these, all below them, Postgres and Valkey so far."""
        total = await postgres_cpu_s(self.database)
        told = self.broker.info("cpu")
        total += float(told["used_cpu_user"]) + float(told["used_cpu_sys"])
        for process in processes:
            root = psutil.Process(process.pid)
            for one in [root, *root.children(recursive=True)]:
                try:
                    total += sum(one.cpu_times()[:4])
                except psutil.NoSuchProcess:
                    continue  # its parent has its time now
        return total


@contextmanager
def started(argv: Sequence[str], env: dict[str, str]) -> Iterator[subprocess.Popen[str]]:
    """A process of ours; its log goes to the folder of its state."""
    inherited = {name: value for name, value in os.environ.items() if "COSERVE" not in name}
    log = Path(env["COSERVE_HOME"]) / "log"
    with log.open("a") as out:
        process = subprocess.Popen(
            argv, env={**inherited, **env}, stdout=subprocess.PIPE, stderr=out, text=True
        )
    try:
        yield process
    finally:
        stop(process)


def engines(stack: ExitStack, world: World, num: int, module: str, *options: str) -> list[str]:
    """So many fakes; their addresses."""
    urls = []
    for _ in range(num):
        argv = [sys.executable, "-m", module, *options]
        process = stack.enter_context(started(argv, world.env))
        assert process.stdout is not None
        urls.append(f"http://127.0.0.1:{process.stdout.readline().split()[-1]}")
    return urls


def gateways(
    stack: ExitStack, world: World, num: int, engine_urls: Sequence[str]
) -> tuple[list[str], list[subprocess.Popen[str]]]:
    """So many before the same engines; their addresses and processes."""
    urls, processes = [], []
    for _ in range(num):
        port = free_port()
        env = world.env | {"ENGINE_URLS": ",".join(engine_urls), "COSERVE_PORT": str(port)}
        processes.append(stack.enter_context(started([sys.executable, "-m", "gateway"], env)))
        urls.append(f"http://127.0.0.1:{port}")
    return urls, processes


async def until_served(http: aiohttp.ClientSession, urls: Sequence[str]) -> None:
    """Until every gateway knows a model."""
    async with asyncio.timeout(LIMIT_S):
        for url in urls:
            while True:
                try:
                    async with http.get(f"{url}/v1/models") as reply:
                        if reply.status == 200 and (await reply.json())["data"]:
                            break
                except aiohttp.ClientError:
                    pass
                await asyncio.sleep(0.1)


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


async def idle(world: World, processes: Sequence[subprocess.Popen[str]]) -> float:
    """The share of a core that is used while nobody asks."""
    before_s, began_s = await world.cpu_s(processes), time.monotonic()
    await asyncio.sleep(IDLE_S)
    return (await world.cpu_s(processes) - before_s) / (time.monotonic() - began_s)


async def measure_chat(world: World, num: int) -> dict[str, float]:
    """Streams through so many gateways."""
    headers = {"authorization": f"Bearer {world.key}"}
    connector = aiohttp.TCPConnector(limit=0)
    async with aiohttp.ClientSession(headers=headers, connector=connector) as http:
        with ExitStack() as stack:
            fakes = engines(stack, world, num, "tests.fakes.server")
            urls, processes = gateways(stack, world, num, fakes)
            await until_served(http, urls)
            await chat(http, urls, 2.0)
            idle_share = await idle(world, processes)
            found = []
            for _ in range(PASSES):
                before_s, began_s = await world.cpu_s(processes), time.monotonic()
                num_calls = await chat(http, urls, PASS_S)
                took_s = time.monotonic() - began_s
                spent_s = await world.cpu_s(processes) - before_s - idle_share * took_s
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


async def measure_batch(world: World, num: int) -> dict[str, float]:
    """A batch whose rows go to so many engines; its second run counts."""
    headers = {"authorization": f"Bearer {world.key}"}
    async with aiohttp.ClientSession(headers=headers) as http:
        with ExitStack() as stack:
            latency = ("--latency-ms", str(ROW_MS))
            fakes = engines(stack, world, num, "bench.quick_engine", *latency)
            urls, _ = gateways(stack, world, 1, fakes)
            env = world.env | {
                "ENGINE_URLS": ",".join(fakes),
                "COSERVE_BATCH_MAX_IN_FLIGHT": str(IN_FLIGHT),
            }
            settings = BatchSettings()
            commands = [*worker_commands(settings), beat_command(settings)]
            processes = [stack.enter_context(started(one.argv, env | one.env)) for one in commands]
            await until_served(http, urls)
            await run_batch(http, urls[0], 200 * num)  # every engine has its dispatcher
            idle_share = await idle(world, processes)
            before_s, began_s = await world.cpu_s(processes), time.monotonic()
            took_s = await run_batch(http, urls[0], ROWS * num)
            spent_s = await world.cpu_s(processes) - before_s
            spent_s -= idle_share * (time.monotonic() - began_s)
    return {"per_s": ROWS * num / took_s, "cpu_us": spent_s / (ROWS * num) * 1e6}


async def measure(folder: Path, database_url: str, broker_url: str) -> dict[str, Any]:
    """Both kinds of load on each number of parts."""
    database = Database(database_url)
    async with database.unit_of_work() as session:
        key, plaintext = await keys.create(session, DEFAULT_PROJECT_ID, "scaling")
        limits = {"requests_per_minute": NEVER_REACHED, "tokens_per_minute": NEVER_REACHED}
        await session.execute(update(ApiKey).where(ApiKey.id == key.id).values(**limits))
    env = {"DATABASE_URL": database_url, "BROKER_URL": broker_url, "COSERVE_HOME": str(folder)}
    world = World(env, database, Redis.from_url(broker_url), plaintext)
    measured: dict[str, Any] = {}
    for name, way in {"chat": measure_chat, "batch": measure_batch}.items():
        found = {num: await way(world, num) for num in NUMBERS}
        alone = found[1]
        for num, told in found.items():
            measured[f"{name}_per_s_{num}"] = told["per_s"]
            measured[f"{name}_cpu_us_{num}"] = told["cpu_us"]
            if num > 1:
                measured[f"{name}_share_of_linear_{num}"] = told["per_s"] / (num * alone["per_s"])
                measured[f"{name}_cpu_kept_{num}"] = alone["cpu_us"] / told["cpu_us"]
        print(name, found, flush=True)
    world.broker.close()
    await database.dispose()
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
