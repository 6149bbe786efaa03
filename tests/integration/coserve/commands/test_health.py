"""The health check of a worker sees one that hangs, and a pool that does."""

from __future__ import annotations

import asyncio
import signal
from pathlib import Path

import psutil
import pytest

from batch.settings import BatchSettings
from batch.worker.app import make_app
from batch.worker.commands import worker_commands
from coserve.commands import health
from coserve.commands.health import answers, pool_runs, worker_name
from tests.fixtures.batches import PATIENCE_S, until
from tests.fixtures.workers import ROOT, workers


@pytest.mark.thorough
async def test_a_worker_is_well_while_it_and_its_pool_run(
    database_url: str, broker_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DATABASE_URL", database_url)
    monkeypatch.setenv("BROKER_URL", broker_url)
    monkeypatch.setenv("COSERVE_HOME", str(tmp_path))
    settings = BatchSettings()
    app = make_app(settings)
    sweep = next(one for one in worker_commands(settings) if one.name == "worker-sweep")
    with workers([sweep], tmp_path / "log", root=ROOT) as started:
        process = psutil.Process(started.processes["worker-sweep"].pid)
        # It has its title when it runs, and none while the title is being written.
        await until(lambda: worker_name(process.pid) is not None)
        name = worker_name(process.pid) or ""
        assert name.startswith("worker-sweep@")
        async with asyncio.timeout(PATIENCE_S):
            while not await asyncio.to_thread(answers, app, name):
                pass
        assert pool_runs(process.pid)
        child = process.children()[0]
        child.send_signal(signal.SIGSTOP)
        await until(lambda: child.status() == psutil.STATUS_STOPPED)
        assert not pool_runs(process.pid)
        child.send_signal(signal.SIGCONT)
        await until(lambda: pool_runs(process.pid))
        process.send_signal(signal.SIGSTOP)
        monkeypatch.setattr(health, "PING_LIMIT_S", 1.0)
        assert not await asyncio.to_thread(answers, app, name)
        process.send_signal(signal.SIGCONT)
    assert not pool_runs(process.pid)
    assert worker_name(process.pid) is None
