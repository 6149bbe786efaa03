"""Postgres is away for a minute while people chat.

    python -m bench.outage

A gateway with 20 clients before the fake engine. Postgres is killed (-9) and started again after
`OUTAGE_S`. Targets: no chat request with a known key fails, and the usage table has every token
that the engine served.

Quoted in docs/benchmark-gateway.md.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import time
from dataclasses import dataclass
from pathlib import Path

from openai import APIError, AsyncOpenAI

from bench.report import at_most, option_parser, report, scratch_folder
from bench.servers import Server, gateway_within, postgres_url, valkey_url
from coserve.local import postgres
from coserve.local.part import ManagedProcess
from store.models import DEFAULT_PROJECT_ID
from store.repositories import usage as usages
from store.session import Database
from tests.fakes.engine import FakeEngine, FakeSettings
from tests.fakes.server import serving

OUTAGE_S = 60.0
BEFORE_S = 5.0
SETTLE_S = 15.0
NUM_CLIENTS = 20
PAUSE_S = 0.2
MODEL = "fake-model"


@dataclass
class Seen:
    """What the clients saw."""

    num_answered: int = 0
    num_failed: int = 0
    longest_s: float = 0.0


async def chat(served: Server, seen: Seen, over: asyncio.Event) -> None:
    """One client, one request after the other."""
    base_url = f"{served.url}/v1"
    async with AsyncOpenAI(base_url=base_url, api_key=served.key, max_retries=0) as client:
        while not over.is_set():
            began_s = time.monotonic()
            try:
                await client.chat.completions.create(
                    model=MODEL, messages=[{"role": "user", "content": "a b fake:tokens=5"}]
                )
                seen.num_answered += 1
            except APIError:
                seen.num_failed += 1
            seen.longest_s = max(seen.longest_s, time.monotonic() - began_s)
            await asyncio.sleep(PAUSE_S)


def kill_postgres(home: Path) -> None:
    """-9 for the server; what it has started ends with it."""
    pid_file = next(home.rglob("postmaster.pid"))
    os.kill(int(pid_file.read_text().split()[0]), signal.SIGKILL)


async def run(url: str, broker: str, home: Path) -> dict[str, float]:
    """The outage and what came of it."""
    database, seen, over = Database(url), Seen(), asyncio.Event()
    engine = FakeEngine(FakeSettings(model=MODEL))
    again: ManagedProcess | None = None
    try:
        async with (
            serving(engine) as engine_url,
            gateway_within(database, url, broker, home, engine_url) as served,
            asyncio.TaskGroup() as clients,
        ):
            for _ in range(NUM_CLIENTS):
                clients.create_task(chat(served, seen, over))
            await asyncio.sleep(BEFORE_S)
            kill_postgres(home)
            num_before = seen.num_answered
            await asyncio.sleep(OUTAGE_S)
            num_during = seen.num_answered - num_before
            files = postgres.prepare(home)
            again = ManagedProcess(postgres.command(files, home / "again.log"))
            await asyncio.sleep(SETTLE_S)
            over.set()
        await database.engine.dispose()
        async with database.unit_of_work() as session:
            written = await usages.list_for(session, DEFAULT_PROJECT_ID)
        await database.dispose()
    finally:
        if again is not None:
            again.stop()
    tokens = engine.served["online"]
    return {
        "outage_s": OUTAGE_S,
        "num_answered": seen.num_answered,
        "num_answered_during_outage": num_during,
        "num_failed": seen.num_failed,
        "longest_request_s": round(seen.longest_s, 3),
        "tokens_not_written": tokens.prompt_tokens
        + tokens.completion_tokens
        - sum(row.prompt_tokens + row.completion_tokens for row in written),
    }


def main() -> int:
    option_parser(__doc__).parse_args()
    with scratch_folder() as home, postgres_url(home) as url, valkey_url(home) as broker:
        measured = asyncio.run(run(url, broker, home))
    targets = {"num_failed": at_most(0.0), "tokens_not_written": at_most(0.0)}
    return report("outage", measured, targets)


if __name__ == "__main__":
    sys.exit(main())
