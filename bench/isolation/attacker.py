"""The attacker: a process of its own, at a lower priority, as it would be on another machine."""

from __future__ import annotations

import asyncio
import multiprocessing
import os
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from multiprocessing.connection import Connection
from typing import Final

import aiohttp

from bench.isolation.attacks import ADDRESS, ATTACKS, Load, Tenant

NICENESS: Final = 10
LIMIT_S: Final = 60.0


def attack(name: str, tenant: Tenant, line: Connection) -> None:
    """Attack until something comes through the pipe, then tell what was answered."""
    os.nice(NICENESS)
    asyncio.run(_attack_until_told(name, tenant, line))


async def _attack_until_told(name: str, tenant: Tenant, line: Connection) -> None:
    connector = aiohttp.TCPConnector(limit=0, local_addr=(ADDRESS, 0))
    timeout = aiohttp.ClientTimeout(total=120)
    async with aiohttp.ClientSession(connector=connector, timeout=timeout) as session:
        load = Load(tenant, session)
        task = asyncio.ensure_future(ATTACKS[name].run(load))
        line.send("begun")
        told = asyncio.get_running_loop().run_in_executor(None, line.recv)
        await asyncio.wait([task, told], return_when=asyncio.FIRST_COMPLETED)
        if not task.done():
            task.cancel()
        (failed,) = await asyncio.gather(task, return_exceptions=True)
        line.send((load.answers, repr(failed) if isinstance(failed, Exception) else ""))
        await told


@contextmanager
def attacked(name: str, tenant: Tenant) -> Iterator[Counter[str]]:
    """The attacker at work; what it was answered is known once the block has ended."""
    answers: Counter[str] = Counter()
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe()
    process = context.Process(target=attack, args=(name, tenant, theirs), daemon=True)
    process.start()
    try:
        if not ours.poll(LIMIT_S):
            raise RuntimeError(f"{name}: the attacker does not begin")
        ours.recv()
        yield answers
        ours.send("over")
        if not ours.poll(LIMIT_S):
            raise RuntimeError(f"{name}: the attacker does not end")
        told, failed = ours.recv()
        if failed:
            raise RuntimeError(f"{name}: {failed}")
        answers.update(told)
    finally:
        process.terminate()
        process.join(10)
