"""Each kind of work that blocks has its own threads: one that hangs takes none of another's.

A caller that gives up is free at once; its thread is not, until the work ends. In one pool for all
kinds, a broker that hangs would take the threads that read files and look up names.
"""

from __future__ import annotations

import asyncio
import contextvars
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")


class Bulkhead:
    """Some threads; made when they are needed first, after any fork."""

    def __init__(self, name: str, num_threads: int) -> None:
        self._threads = ThreadPoolExecutor(num_threads, name)

    async def run(self, work: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> T:
        """Do work in a thread, as `asyncio.to_thread` does."""
        bound = partial(contextvars.copy_context().run, work, *args, **kwargs)
        return await asyncio.get_running_loop().run_in_executor(self._threads, bound)
