"""Who is parsed when, and where."""

from __future__ import annotations

import asyncio
import threading
from functools import partial

import pytest

from gateway.http.parsing import Parsing


async def test_work_is_done_beside_the_loop_and_its_error_comes_back() -> None:
    parsing = Parsing()
    assert await parsing.run("a", threading.get_ident) != threading.get_ident()
    with pytest.raises(ZeroDivisionError):
        await parsing.run("a", lambda: 1 // 0)
    assert not parsing._turns
    parsing.close()


async def test_projects_take_turns() -> None:
    parsing, order = Parsing(), list[str]()
    first = threading.Event()
    held = asyncio.ensure_future(parsing.run("many", lambda: first.wait(10)))
    await asyncio.sleep(0)
    others = [
        asyncio.ensure_future(parsing.run(name, partial(order.append, name)))
        for name in ("many", "many", "many", "few")
    ]
    await asyncio.sleep(0)
    first.set()
    await asyncio.gather(held, *others)
    assert order.index("few") == 0
    parsing.close()


async def test_who_goes_away_while_waiting_holds_up_nobody() -> None:
    parsing = Parsing()
    first = threading.Event()
    held = asyncio.ensure_future(parsing.run("a", lambda: first.wait(10)))
    waiting = asyncio.ensure_future(parsing.run("a", lambda: None))
    await asyncio.sleep(0)
    waiting.cancel()
    first.set()
    await held
    assert await parsing.run("a", lambda: 1) == 1
    assert not parsing._turns
    parsing.close()
