"""Who is parsed when, and where."""

from __future__ import annotations

import asyncio
import threading
from functools import partial

import pytest

from gateway.http.parsing import FEW_AT_ONCE, Parsing, let_go_of


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


class Item:
    """Notes how many others are left when it goes."""

    def __init__(self, left: list[int], items: list[object]) -> None:
        self._left, self._items = left, items

    def __del__(self) -> None:
        self._left.append(len(self._items))


def test_a_body_is_let_go_of_a_few_items_at_a_time() -> None:
    left = list[int]()
    parts = list[object]()
    parts += [Item(left, parts) for _ in range(5 * FEW_AT_ONCE)]
    stop = ["kept: what echoes the request has it too"]
    body = {"messages": [{"role": "user", "content": parts}], "stop": stop}
    let_go_of(body)
    assert body == {"messages": [], "stop": stop}
    assert sorted(set(left)) == [0, *(n * FEW_AT_ONCE for n in range(1, 5))]


async def test_a_body_is_let_go_of_beside_the_loop() -> None:
    parsing, threads = Parsing(), list[int]()

    class Last:
        def __del__(self) -> None:
            threads.append(threading.get_ident())

    body = {"prompt": [Last()]}
    parsing.forget(body)
    await parsing.run("a", lambda: None)
    assert threads
    assert threading.get_ident() not in threads
    parsing.close()
    parsing.forget(body)  # nothing is raised where the process ends
