"""Clients and a device in another process on one clock, which skips what nobody works in."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import pytest

from lab.emulated.clock import VirtualClock
from lab.emulated.virtual_loop import NotOnTheClock, VirtualTimeLoop

HOUR_S = 3600.0
"""A pass of the toy engine: on the host's clock nobody would live to see the end."""

TOY = "tests.unit.lab.emulated.toy_engine"


@contextmanager
def toy_engine(folder: Path, pass_s: float = HOUR_S) -> Iterator[tuple[int, int]]:
    """Its process group and its port."""
    command = [sys.executable, "-m", TOY, str(folder), str(pass_s)]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, text=True, start_new_session=True
    ) as process:
        assert process.stdout is not None
        try:
            yield process.pid, int(process.stdout.readline())
        finally:
            process.kill()


async def ask(port: int, at_s: float, tokens: int) -> list[float]:
    """When the tokens of an answer came, in hours from the beginning."""
    loop = asyncio.get_running_loop()
    began_s = loop.time()
    await asyncio.sleep(at_s)
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(f"{tokens}\n".encode())
    came = [(loop.time() - began_s) / HOUR_S async for _ in reader]
    writer.close()
    return came


@pytest.mark.timeout(60)
def test_every_token_comes_when_its_pass_is_over(tmp_path: Path) -> None:
    clock = VirtualClock.create(tmp_path)

    async def chats() -> list[list[float]]:
        loop = asyncio.get_running_loop()
        assert isinstance(loop, VirtualTimeLoop)
        with toy_engine(tmp_path) as (group, port), loop.virtual(group):
            at_s = (0.0, 0.4 * HOUR_S, 1.5 * HOUR_S, 9.25 * HOUR_S)
            return await asyncio.gather(
                *(ask(port, one, tokens) for one, tokens in zip(at_s, (3, 2, 1, 2), strict=True))
            )

    with asyncio.Runner(loop_factory=partial(VirtualTimeLoop, clock)) as runner:
        first, amid, later, last = runner.run(chats())
    assert first == pytest.approx([1, 2, 3])
    assert amid == pytest.approx([2, 3])  # it waits for the pass that runs
    assert later == pytest.approx([3])
    assert last == pytest.approx([10.25, 11.25])  # the device was idle
    assert not clock.is_turned


@pytest.mark.timeout(60)
def test_afterwards_time_goes_on_as_the_hosts(tmp_path: Path) -> None:
    clock = VirtualClock.create(tmp_path)

    async def chat() -> tuple[float, float]:
        loop = asyncio.get_running_loop()
        assert isinstance(loop, VirtualTimeLoop)
        with toy_engine(tmp_path, 0.01) as (group, port):
            with loop.virtual(group):
                await asyncio.sleep(HOUR_S)
            began_s = loop.time()
            tokens = await ask(port, 0.0, 2)
            return began_s, loop.time() - began_s - len(tokens) * 0.01

    before_s = clock.now_s()
    with asyncio.Runner(loop_factory=partial(VirtualTimeLoop, clock)) as runner:
        began_s, beyond_s = runner.run(chat())
    assert began_s - before_s >= HOUR_S
    assert 0.0 <= beyond_s < 1.0


@pytest.mark.timeout(60)
def test_an_engine_on_another_clock_is_refused(tmp_path: Path) -> None:
    ours, other = VirtualClock.create(tmp_path / "ours"), VirtualClock.create(tmp_path / "other")

    async def enter() -> None:
        loop = asyncio.get_running_loop()
        assert isinstance(loop, VirtualTimeLoop)
        with toy_engine(tmp_path / "other") as (group, _port), loop.virtual(group):
            pytest.fail("it was let in")

    with (
        asyncio.Runner(loop_factory=partial(VirtualTimeLoop, ours)) as runner,
        pytest.raises(NotOnTheClock, match="setup-engine"),
    ):
        runner.run(enter())
    assert not ours.is_turned
    assert not other.is_turned
