"""The whole service under its own supervisor before a fake engine, and what customers ask of it."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import psycopg
from psycopg import sql

from bench.batches import line
from store.repositories import key as keys
from store.session import Database
from tests.chaos.engine import FakeEngineProcess
from tests.chaos.installation import Installation

CHAT = "/v1/chat/completions"
LATENCY_MS, MAX_RUNNING = 20.0, 1024
"""The engine answers after so long, to at most so many requests at once."""


@contextmanager
def running_installation(folder: Path) -> Iterator[Installation]:
    """The service as long as the block, its state and its engine's in this folder."""
    fake = FakeEngineProcess(folder, latency_ms=LATENCY_MS, max_running=MAX_RUNNING)
    installation = Installation(folder / "home", fake)
    try:
        installation.start()
        yield installation
    finally:
        installation.stop()


def client_of(installation: Installation, key: str | None = None) -> httpx.Client:
    """A client of the installation's gateway."""
    headers = {"Authorization": f"Bearer {key or installation.key}"}
    return httpx.Client(base_url=installation.url, headers=headers, timeout=120)


def upload(client: httpx.Client, num_lines: int) -> str:
    """Upload a file of so many lines of `LINE_BYTES`; its id."""
    with tempfile.TemporaryFile() as file:
        file.writelines(line(number) + b"\n" for number in range(num_lines))
        file.seek(0)
        reply = client.post("/v1/files", data={"purpose": "batch"}, files={"file": file})
    return str(reply.raise_for_status().json()["id"])


def create(client: httpx.Client, file_id: str) -> str:
    """A batch over the file; its id."""
    wanted = {"input_file_id": file_id, "endpoint": CHAT, "completion_window": "24h"}
    return str(client.post("/v1/batches", json=wanted).raise_for_status().json()["id"])


@contextmanager
def database(installation: Installation) -> Iterator[psycopg.Connection[Any]]:
    """A connection that reads what the service has written."""
    with psycopg.connect(installation.dsn, autocommit=True) as connection:
        yield connection


async def new_projects(
    installation: Installation, limits: Mapping[str, Mapping[str, int]]
) -> dict[str, str]:
    """A key of each of these new projects.

    Args:
        installation: Where.
        limits: By project id: columns of `projects`, and what they limit it to.
    """
    with database(installation) as connection:
        for project_id, columns in limits.items():
            values = {"id": project_id, "name": project_id, **columns}
            connection.execute(
                sql.SQL("INSERT INTO projects ({}) VALUES ({})").format(
                    sql.SQL(", ").join(map(sql.Identifier, values)),
                    sql.SQL(", ").join(map(sql.Literal, values.values())),
                )
            )
    handle = Database(installation.dsn.replace("postgresql://", "postgresql+psycopg://"))
    async with handle.unit_of_work() as session:
        found = {
            project_id: (await keys.create(session, project_id, "bench"))[1]
            for project_id in limits
        }
    await handle.dispose()
    return found
