"""What an open stream sees of another project whose large bodies are all answered 429.

One stream of a fake engine, a token every few milliseconds, is read by a process of its own: first
alone, then while a project at one request a minute sends legal bodies of 1 to 8 MiB, 7 MiB a
second, and at last while a project without limits has such bodies served. A stall is what a gap
between two pieces of the stream has beyond the engine's pace.
"""

from __future__ import annotations

import asyncio
import shutil
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from itertools import cycle
from pathlib import Path
from typing import Any

import aiohttp
import orjson

from bench.gateway_compare.peers import Peer, one_gateway
from bench.list_stall import TOKEN_MS, stalls_ms
from bench.report import report
from engine_adapter.client.base import CHAT_PATH
from store.models import Project
from store.repositories import key as keys
from store.session import Database

NUM_TOKENS, BYTES_PER_S, NUM_CALLERS = 4000, 7 * 1024 * 1024, 4
TARGETS = {"refused_stall_p999_ms": (50.0, False)}


def add_projects(url: str, made: dict[str, str]) -> None:
    """A project at one request a minute, and one without limits."""

    async def run() -> None:
        database = Database(url)
        async with database.unit_of_work() as session:
            for name, limit in (("limited", 1), ("free", None)):
                session.add(Project(id=f"proj_{name}", name=name, requests_per_minute=limit))
                await session.flush()
                _, made[name] = await keys.create(session, f"proj_{name}", name)
        await database.dispose()

    asyncio.run(run())


def bodies(model: str) -> Iterator[bytes]:
    """Legal chat bodies that are work to parse: many messages, many parts, long texts."""
    part, small = {"type": "text", "text": "a"}, {"role": "user", "content": "a" * 20}
    contents: tuple[list[dict[str, Any]], ...] = (
        [small] * 20_000,
        [{"role": "user", "content": [part] * 40_000}],
        [{"role": "user", "content": "a" * 4 * 1024 * 1024}],
    )
    for messages in contents:
        yield orjson.dumps({"model": model, "messages": messages, "max_tokens": 1})


async def attack(peer: Peer, key: str, statuses: Counter[int]) -> None:
    """Send bodies at the rate asked for, for ever."""
    url, pieces = peer.url + CHAT_PATH, cycle([*bodies("fake-model")])
    headers = {"authorization": f"Bearer {key}", "content-type": "application/json"}
    begun_s, sent = time.monotonic(), 0
    async with aiohttp.ClientSession(headers=headers) as client:

        async def caller() -> None:
            nonlocal sent
            for raw in pieces:
                sent += len(raw)
                await asyncio.sleep(max(0.0, begun_s + sent / BYTES_PER_S - time.monotonic()))
                try:
                    async with client.post(url, data=raw) as reply:
                        statuses[reply.status] += 1
                        await reply.read()
                except aiohttp.ClientError:
                    statuses[0] += 1  # the connection was closed while it sent

        async with asyncio.TaskGroup() as group:
            for _ in range(NUM_CALLERS):
                group.create_task(caller())


async def measure(peer: Peer, made: dict[str, str]) -> dict[str, Any]:
    loop = asyncio.get_running_loop()
    figures: dict[str, Any] = {"token_ms": TOKEN_MS, "bytes_per_s": BYTES_PER_S}
    with ProcessPoolExecutor(1) as pool:
        for name, key in (("alone", None), ("refused", made["limited"]), ("served", made["free"])):
            statuses: Counter[int] = Counter()
            attacker = key and asyncio.ensure_future(attack(peer, key, statuses))
            found = await loop.run_in_executor(pool, stalls_ms, peer.url, peer.key, NUM_TOKENS)
            if attacker:
                attacker.cancel()
                await asyncio.gather(attacker, return_exceptions=True)
            found.sort()
            for words, share in (("p50", 0.5), ("p99", 0.99), ("p999", 0.999), ("worst", 1.0)):
                at = min(len(found) - 1, int(share * len(found)))
                figures[f"{name}_stall_{words}_ms"] = round(found[at], 1)
            for status, number in sorted(statuses.items()):
                figures[f"{name}_answers_{status}"] = number
    return figures


def main() -> int:
    """Start everything, measure, report."""
    folder, made = Path(tempfile.mkdtemp(prefix="csb-")), dict[str, str]()
    try:
        with one_gateway(folder, lambda url: add_projects(url, made)) as peer:
            measured = asyncio.run(measure(peer, made))
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    return 0 if report("isolation_gateway", measured, TARGETS) else 1


if __name__ == "__main__":
    sys.exit(main())
