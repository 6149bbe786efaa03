"""Bodies that are not brief are parsed and checked beside the event loop that all streams share.

One thread: more would only queue for the interpreter's lock, and the loop with them. A project has
one body there at a time, so projects take turns, whatever one of them sends. The interpreter hands
the lock over every `SWITCH_S`, except inside of one call in C, which `api.json_shape` bounds.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import Any, Final, TypeVar

SWITCH_S: Final = 0.001
BRIEF_BYTES: Final = 8 * 1024
"""A body up to this length is parsed, checked and encoded where it comes: some 5 ms at the most."""
FEW_AT_ONCE: Final = 256
_PROMPTS: Final = ("messages", "prompt", "input")

T = TypeVar("T")


class Parsing:
    """The thread, and whose turn it is.

    Invariant: a project has an entry in `_turns` exactly while it has work here.
    """

    def __init__(self) -> None:
        self._thread = ThreadPoolExecutor(1, "parsing")
        self._turns: dict[str, tuple[asyncio.Lock, int]] = {}

    async def run(self, project_id: str, work: Callable[[], T], *, is_large: bool = True) -> T:
        """Do work in the thread, after what the same project has there; little of it at once."""
        if not is_large:
            return work()
        sys.setswitchinterval(SWITCH_S)
        turn, number = self._turns.get(project_id) or (asyncio.Lock(), 0)
        self._turns[project_id] = turn, number + 1
        try:
            async with turn:
                return await asyncio.get_running_loop().run_in_executor(self._thread, work)
        finally:
            turn, number = self._turns.pop(project_id)
            if number > 1:
                self._turns[project_id] = turn, number - 1

    def forget(self, body: Mapping[str, Any]) -> None:
        """Let go of a large body in the thread; see `let_go_of`."""
        with suppress(RuntimeError):  # the process ends, and all of it goes
            self._thread.submit(let_go_of, body)

    def close(self) -> None:
        self._thread.shutdown(wait=False, cancel_futures=True)


def let_go(items: list[Any]) -> None:
    """Empty a list that nobody needs any more, a few items at a time.

    What goes with its last reference goes in one step, and all of that step keeps the lock.
    """
    while items:
        del items[-FEW_AT_ONCE:]


def let_go_of(body: Mapping[str, Any]) -> None:
    """The same of a body's prompts: messages and their parts, inputs, token ids."""
    for value in map(body.get, _PROMPTS):
        if type(value) is list:
            for item in value:
                content = item.get("content") if type(item) is dict else item
                if type(content) is list:
                    let_go(content)
            let_go(value)
