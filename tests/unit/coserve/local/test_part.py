"""A part's life with real processes: ready, crashed, started again, given up, stopped."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest

from coserve.local.command import Command
from coserve.local.part import Part, PartPlan, PartState, RefusedError, StartFailedError
from coserve.local.restart import RestartPolicy

QUICK = RestartPolicy(first_delay_s=0.05, factor=2, longest_delay_s=0.2)
SLEEPER = "import time; print('started', flush=True); time.sleep(600)"


def make(tmp_path: Path, code: str, said: list[str], **more: object) -> Part:
    log = tmp_path / "part.log"

    async def has_started() -> bool:
        return log.exists() and "started" in log.read_text()

    command = Command("part", (sys.executable, "-c", code), log, env=dict(os.environ))
    settings = {"ready_limit_s": 10.0, "restart": QUICK, **more}
    plan = PartPlan("The part", command, has_started, **settings)  # type: ignore[arg-type]
    return Part(plan, say=said.append, changed=lambda: None)


async def until(true: Callable[[], bool]) -> None:
    async with asyncio.timeout(15):
        while not true():
            await asyncio.sleep(0.02)


async def process_of(part: Part) -> psutil.Process:
    """The process behind the shim; just after a start the shim may not have made it yet."""
    found: list[psutil.Process] = []

    def there_is_one() -> bool:
        found[:] = psutil.Process(part.pid).children() if part.pid is not None else []
        return len(found) == 1

    await until(there_is_one)
    return found[0]


async def test_a_part_becomes_ready_and_stops(tmp_path: Path) -> None:
    part = make(tmp_path, SLEEPER, [])
    await part.start()
    states = [part.state]
    process = await process_of(part)
    await part.stop()
    states.append(part.state)
    assert states == [PartState.READY, PartState.STOPPED]
    assert part.pid is None
    assert not process.is_running()


async def test_a_crash_is_told_and_repaired(tmp_path: Path) -> None:
    said: list[str] = []
    part = make(tmp_path, SLEEPER, said)
    await part.start()
    async with asyncio.TaskGroup() as group:
        keeper = group.create_task(part.keep())
        for number in (1, 2):

            def is_back(number: int = number) -> bool:
                return part.num_restarts == number and part.state is PartState.READY

            before = await process_of(part)
            os.kill(before.pid, signal.SIGKILL)
            await until(is_back)
            assert (await process_of(part)).pid != before.pid
        keeper.cancel()
    await part.stop()
    assert "exit code 137" in said[0]
    assert "starting it again" in said[0]
    assert said[1].endswith("ready again")
    assert len(said) == 4


async def test_a_part_that_came_up_before_gets_longer_when_a_start_takes_too_long(
    tmp_path: Path,
) -> None:
    """It needs 1.3 s from its second start on, and has one: on a busy machine none would do."""
    code = (
        "import pathlib, time; seen = pathlib.Path('" + str(tmp_path) + "/seen')\n"
        "if seen.exists(): time.sleep(1.3)\n"
        "seen.touch(); print('started', flush=True); time.sleep(600)"
    )
    said: list[str] = []
    part = make(tmp_path, code, said, ready_limit_s=1.0)
    await part.start()
    async with asyncio.TaskGroup() as group:
        keeper = group.create_task(part.keep())
        await asyncio.to_thread((tmp_path / "part.log").unlink)
        os.kill((await process_of(part)).pid, signal.SIGKILL)
        await until(lambda: bool(said) and said[-1].endswith("ready again"))
        keeper.cancel()
    await part.stop()
    assert "The part was not ready after 1 s; it gets 2 s now" in said


async def test_a_part_that_never_starts_is_given_up_with_its_last_words(tmp_path: Path) -> None:
    code = "import sys; sys.exit('the setting X is wrong')"
    part = make(tmp_path, code, [])
    with pytest.raises(StartFailedError, match="exit code 1") as caught:
        await part.start()
    assert str(caught.value).count("the setting X is wrong") == QUICK.num_tries_at_start
    assert part.state is PartState.STOPPED


async def test_a_part_that_says_what_is_wrong_is_not_tried_again(tmp_path: Path) -> None:
    code = "import sys; print('tried', flush=True); sys.exit(79)"
    part = make(tmp_path, code, [], refusal=lambda code: "X is 0; give 1" if code == 79 else "")
    with pytest.raises(RefusedError) as caught:
        await part.start()
    assert str(caught.value) == "The part cannot start: X is 0; give 1"
    assert (tmp_path / "part.log").read_text().count("tried") == 1
    assert part.state is PartState.STOPPED


async def test_a_part_that_hangs_is_given_up_and_ended(tmp_path: Path) -> None:
    code = "import os, time; print(os.getpid(), flush=True); time.sleep(600)"
    part = make(tmp_path, code, [], ready_limit_s=1.0)
    with pytest.raises(StartFailedError, match="not ready after 1 s"):
        await part.start()
    pids = (tmp_path / "part.log").read_text().split()
    assert len(pids) == 1
    assert not psutil.pid_exists(int(pids[0]))
