"""Servers for benchmarks: a Postgres and a Valkey of their own, as durable as in production."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from alembic import command
from alembic.config import Config

from bench.paths import ROOT
from coserve.local import postgres, valkey
from coserve.local.part import ManagedProcess

START_LIMIT_S = 60.0


def stop(process: subprocess.Popen[bytes] | subprocess.Popen[str]) -> None:
    """Ask it to end; one that does not is killed."""
    process.terminate()
    try:
        process.wait(30)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


@contextmanager
def postgres_url(folder: Path) -> Iterator[str]:
    """The URL of a new, migrated database that lives as long as the block."""
    files = postgres.prepare(folder)
    process = ManagedProcess(postgres.command(files, folder / "postgres.log"))
    try:
        limit = time.monotonic() + START_LIMIT_S
        while not postgres.is_ready(files):
            if process.poll() is not None or time.monotonic() > limit:
                raise RuntimeError((folder / "postgres.log").read_text()[-2000:])
            time.sleep(0.05)
        postgres.ensure_database(files, "bench")
        url = files.url("bench")
        config = Config(str(ROOT / "migrations" / "alembic.ini"))
        config.set_main_option("sqlalchemy.url", url.replace("%", "%%"))
        command.upgrade(config, "head")
        yield url
    finally:
        process.stop()


@contextmanager
def valkey_url(folder: Path) -> Iterator[str]:
    """The URL of a new broker that lives as long as the block."""
    files = valkey.prepare(folder)
    process = ManagedProcess(valkey.command(files, folder / "valkey.log"))
    try:
        limit = time.monotonic() + START_LIMIT_S
        while not valkey.is_ready(files):
            if process.poll() is not None or time.monotonic() > limit:
                raise RuntimeError((folder / "valkey.log").read_text()[-2000:])
            time.sleep(0.05)
        yield files.url
    finally:
        process.stop()
