"""The proof of `make fleet`: everything is restarted, three parts are lost, promises are kept.

Three gateways, two worker hosts, five fake engines that register themselves and, where the run is
long enough for it, a real one; PgBouncer before Postgres, an S3 server. FLEET_MINUTES says how long
(1 in `make test-all`, 10 in `make fleet`).
"""

from __future__ import annotations

import asyncio
import os
import sys
import time
from collections import Counter
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx
import orjson
import pytest

from engine_adapter.engine_process import EngineSettings, engine_command
from store.models import DEFAULT_PROJECT_ID
from store.repositories import key as keys
from store.session import Database
from tests.fixtures.s3_server import BUCKET, S3Server
from tests.fleet.chat import Chat, Losses
from tests.fleet.installation import Gateways, Installation

pytestmark = [pytest.mark.pgbouncer, pytest.mark.thorough, pytest.mark.timeout(2400)]

ROOT = Path(__file__).parents[2]
MINUTES = float(os.environ.get("FLEET_MINUTES", "1"))
FAKE, REAL = "fake-model", "SmolLM2-135M-Instruct"
ENGINE_PYTHON = ROOT / ".venv-engine/bin/python"
MODEL_DIR = ROOT / ".coserve/models" / REAL
WITH_REAL = MINUTES >= 3 and ENGINE_PYTHON.exists() and MODEL_DIR.exists()
NUM_GATEWAYS, NUM_HOSTS, NUM_FAKES = 3, 2, 5
CHAT_PER_S = 3.0
LINES_PER_BATCH = int(200 * max(1.0, MINUTES / 2))
LIMIT_S = 300.0


def fake_command(port: int) -> list[str]:
    return [
        sys.executable, "-m", "tests.fakes.server", "--port", str(port),
        "--model", FAKE, "--latency-ms", "100", "--token-ms", "20", "--max-running", "16",
    ]  # fmt: skip


def real_command(port: int) -> list[str]:
    argv, env = engine_command(
        EngineSettings(python=ENGINE_PYTHON, model_dir=MODEL_DIR, port=port), os.environ
    )
    return ["/usr/bin/env", "-i", *(f"{name}={value}" for name, value in env.items()), *argv]


@pytest.fixture
async def installation(
    pooled_url: str, broker_url: str, s3_server: S3Server, tmp_path: Path
) -> AsyncIterator[Installation]:
    plain = {k: v for k, v in os.environ.items() if not k.startswith("COSERVE_")}
    environment = plain | s3_server.environment() | {
        "DATABASE_URL": pooled_url,
        "COSERVE_DATABASE_PREPARES": "0",
        "BROKER_URL": broker_url,
        "ENGINE_URLS": "",
        "COSERVE_HOME": str(tmp_path),
        "COSERVE_FILES_URL": f"s3://{BUCKET}/{tmp_path.name}",
    }  # fmt: skip
    made = Installation(tmp_path, environment, fake_command, Gateways({}))
    for _ in range(NUM_GATEWAYS):
        made.add_gateway().start()
    for _ in range(NUM_FAKES):
        made.add_engine().start()
    if WITH_REAL:
        made.add_engine(real_command).start()
    for _ in range(NUM_HOSTS):
        for part in made.add_worker_host():
            part.start()
    try:
        yield made
    except BaseException:
        sys.stderr.write(made.logs())
        raise
    finally:
        await made.end()


async def until_ready(
    installation: Installation, headers: dict[str, str], num_gateways: int = NUM_GATEWAYS
) -> None:
    """All gateways ready, each with all models."""
    wanted = {FAKE, REAL} if WITH_REAL else {FAKE}
    async with asyncio.timeout(LIMIT_S), httpx.AsyncClient(headers=headers) as http:
        while len(installation.gateways.ready) < num_gateways:
            await asyncio.sleep(0.1)
        for url in installation.gateways.ready:
            while True:
                models = (await http.get(f"{url}/v1/models")).json()["data"]
                if {one["id"] for one in models} >= wanted:
                    break
                await asyncio.sleep(0.2)


class Batches:
    """Batches sent at any gateway, and what came of each line."""

    def __init__(self, gateways: Gateways, headers: dict[str, str]) -> None:
        self._gateways = gateways
        self._http = httpx.AsyncClient(headers=headers, timeout=60)
        self.ids: list[str] = []

    async def _ask(self, method: str, path: str, **more: Any) -> httpx.Response:
        """A caller tries again elsewhere when a gateway is gone."""
        async with asyncio.timeout(LIMIT_S):
            while True:
                url = self._gateways.next()
                try:
                    if url is not None:
                        answer = await self._http.request(method, f"{url}/v1{path}", **more)
                        if answer.status_code < 500:
                            return answer.raise_for_status()
                except httpx.TransportError:
                    pass
                await asyncio.sleep(0.2)

    async def send(self, model: str, num_lines: int) -> None:
        number = len(self.ids)
        lines = b"\n".join(
            orjson.dumps(
                {
                    "custom_id": f"{number}-{line}",
                    "method": "POST",
                    "url": "/v1/chat/completions",
                    "body": {
                        "model": model,
                        "max_tokens": 8,
                        "messages": [{"role": "user", "content": f"line {number} {line}"}],
                    },
                }
            )
            for line in range(num_lines)
        )
        files = {"file": ("lines.jsonl", lines)}
        file = (await self._ask("POST", "/files", files=files, data={"purpose": "batch"})).json()
        body = {
            "input_file_id": file["id"],
            "endpoint": "/v1/chat/completions",
            "completion_window": "24h",
        }
        self.ids.append((await self._ask("POST", "/batches", json=body)).json()["id"])

    async def outcome(self, batch_id: str, limit_s: float) -> tuple[dict[str, Any], Counter[str]]:
        """The batch at its end, and how often each line is in its output."""
        async with asyncio.timeout(limit_s):
            while True:
                batch: dict[str, Any] = (await self._ask("GET", f"/batches/{batch_id}")).json()
                if batch["status"] in ("completed", "failed", "expired", "cancelled"):
                    break
                await asyncio.sleep(0.5)
        found: Counter[str] = Counter()
        if batch["output_file_id"]:
            content = await self._ask("GET", f"/files/{batch['output_file_id']}/content")
            found.update(orjson.loads(line)["custom_id"] for line in content.text.splitlines())
        return batch, found

    async def close(self) -> None:
        await self._http.aclose()


async def restart_and_lose(
    installation: Installation, losses: Losses, batches: Batches, for_s: float
) -> list[str]:
    """What is done to the fleet, over the time, each time with a fresh batch; in words."""
    gateways, done = installation.gateways, []
    step_s = for_s / 8
    await batches.send(FAKE, LINES_PER_BATCH)
    for url, part in gateways.parts.items():
        await asyncio.sleep(step_s / NUM_GATEWAYS)
        await part.stop(180)
        part.start()
        async with asyncio.timeout(LIMIT_S):
            while url not in gateways.ready:
                await asyncio.sleep(0.1)
    done.append(f"{len(gateways.parts)} gateways restarted in turn")
    await batches.send(FAKE, LINES_PER_BATCH)
    fakes = [*installation.engines.items()][:NUM_FAKES]
    for url, part in fakes[:2]:  # the model's next version: a new engine, then the old one ends
        installation.add_engine().start()
        await asyncio.sleep(step_s / 2)
        await part.stop(180)
        del installation.engines[url]
    done.append("2 engines replaced by new ones")
    await asyncio.sleep(step_s)
    await batches.send(FAKE, LINES_PER_BATCH)
    _, victim = fakes[2]
    await asyncio.sleep(1)
    lost = losses.engine()
    await victim.kill()
    lost.over()
    done.append("1 engine lost")
    await asyncio.sleep(step_s)
    url, gateway = next(iter(gateways.parts.items()))
    lost = losses.gateway(url)
    await gateway.kill()
    async with asyncio.timeout(LIMIT_S):
        while url in gateways.ready:
            await asyncio.sleep(0.1)
    lost.over()
    done.append("1 gateway lost")
    await asyncio.sleep(step_s)
    gateway.start()
    await batches.send(FAKE, LINES_PER_BATCH)
    await asyncio.sleep(1)
    for part in installation.hosts[0]:
        await part.kill()
    done.append("1 worker host lost")
    await asyncio.sleep(step_s)
    return done


async def test_a_fleet_keeps_its_promises_while_parts_are_restarted_and_lost(
    installation: Installation, database: Database
) -> None:
    async with database.unit_of_work() as session:
        _, plaintext = await keys.create(session, DEFAULT_PROJECT_ID, "fleet")
    headers = {"authorization": f"Bearer {plaintext}"}
    losses, for_s = Losses(), MINUTES * 60
    looking = asyncio.ensure_future(installation.gateways.look())
    batches = Batches(installation.gateways, headers)
    try:
        await until_ready(installation, headers)
        models = [FAKE] * NUM_FAKES + ([REAL] if WITH_REAL else [])
        chat = Chat(installation.gateways, losses, models, headers)
        began_s = time.monotonic()
        over = asyncio.Event()
        chatting = asyncio.ensure_future(chat.run(for_s, CHAT_PER_S, over))
        if WITH_REAL:
            await batches.send(REAL, 20)
        done = await restart_and_lose(installation, losses, batches, for_s)
        over.set()
        await chatting
        outcomes = [await batches.outcome(one, LIMIT_S + for_s) for one in batches.ids]
        took_s = time.monotonic() - began_s
    finally:
        looking.cancel()
        await batches.close()
    num_lines = sum(batch["request_counts"]["total"] for batch, _ in outcomes)
    num_once = sum(count == 1 for _, found in outcomes for count in found.values())
    num_calls = sum(chat.ends.values())
    seen = [
        f"fleet: {took_s:.0f} s; {'; '.join(done)}",
        f"  every line exactly once:          {num_once} of {num_lines}",
        f"  chat answered:                    {chat.ends['answered']} of {num_calls}",
        f"  begun on a part that was lost:    {chat.ends['excused']}",
        f"  lost otherwise (promised: 0):     {len(chat.broken)}",
        f"  found no gateway (promised: 0):   {chat.num_without_gateway}",
    ]
    sys.stderr.write("\n" + "\n".join([*seen, *chat.broken[:5]]) + "\n")
    assert [(batch["status"], batch["errors"]) for batch, _ in outcomes] == [
        ("completed", None)
    ] * len(outcomes)
    assert num_once == num_lines == sum(len(found) for _, found in outcomes)
    assert chat.broken == []
    assert chat.num_without_gateway == 0
    assert chat.ends["answered"] > 0
