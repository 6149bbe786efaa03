"""Order of the end, and what `coserve status` reads."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from pathlib import Path

from coserve.local.command import Command
from coserve.local.part import PartPlan
from coserve.local.supervisor import STATE_FILE, Supervisor

CODE = """
import signal, sys, time
def end(*_):
    print(sys.argv[1], "ends", flush=True)
    open(sys.argv[2], "a").write(sys.argv[1] + "\\n")
    sys.exit(0)
signal.signal(signal.SIGTERM, end)
print("started", flush=True)
while True:
    time.sleep(0.05)
"""


def plan(tmp_path: Path, name: str) -> PartPlan:
    log = tmp_path / "log" / f"{name}.log"

    async def has_started() -> bool:
        return log.exists() and "started" in log.read_text()

    argv = (sys.executable, "-c", CODE, name, str(tmp_path / "ends"))
    return PartPlan(name, Command(name, argv, log, env=dict(os.environ)), has_started)


async def test_parts_end_in_reverse_order_and_leave_no_state(tmp_path: Path) -> None:
    async with asyncio.TaskGroup() as group:
        supervisor = Supervisor(tmp_path, group=group, url="http://x", say=lambda _: None)
        for rank, name in enumerate(["database", "engine", "gateway"]):
            await supervisor.start(plan(tmp_path, name), rank=rank)
        state = json.loads((tmp_path / STATE_FILE).read_text())
        await supervisor.stop()
    assert [(part["name"], part["state"]) for part in state["parts"]] == [
        ("database", "ready"),
        ("engine", "ready"),
        ("gateway", "ready"),
    ]
    assert state["pid"] == os.getpid()
    assert (tmp_path / "ends").read_text().split() == ["gateway", "engine", "database"]
    assert not (tmp_path / STATE_FILE).exists()


async def test_parts_of_one_rank_end_together(tmp_path: Path) -> None:
    async with asyncio.TaskGroup() as group:
        supervisor = Supervisor(tmp_path, group=group, url="http://x", say=lambda _: None)
        for name in ("worker", "beat"):
            await supervisor.start(plan(tmp_path, name), rank=1)
        await supervisor.stop()
    assert sorted((tmp_path / "ends").read_text().split()) == ["beat", "worker"]
