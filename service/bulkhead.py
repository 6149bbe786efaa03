"""Each kind of work that blocks has its own threads: one that hangs takes none of another's.

A caller that gives up is free at once; its thread is not, until the work ends. In one pool for all
kinds, a broker that hangs would take the threads that read files and look up names.

The threads of one kind are shared by turns of those for whom it is done (`service.asking`): however
much of one waits, another's first piece waits for what runs now and one piece of each beside it.
"""

from __future__ import annotations

import asyncio
import contextvars
import threading
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from typing import Any, Final, ParamSpec, TypeVar

from service.asking import asking

P = ParamSpec("P")
T = TypeVar("T")
_Job = tuple["Future[Any]", Callable[[], Any]]


class Bulkhead:
    """Some threads; made when they are needed first, after any fork.

    Invariant: as many calls of `_do_next` are with the threads as there are jobs in `_queues`; an
    owner without a job has no queue.
    """

    def __init__(self, name: str, num_threads: int) -> None:
        self._threads = ThreadPoolExecutor(num_threads, name)
        self._lock: Final = threading.Lock()
        self._queues: dict[str, deque[_Job]] = {}

    async def run(self, work: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> T:
        """Do work in a thread, as `asyncio.to_thread` does."""
        done: Future[T] = Future()
        bound = partial(contextvars.copy_context().run, work, *args, **kwargs)
        with self._lock:
            self._queues.setdefault(asking(), deque()).append((done, bound))
        self._threads.submit(self._do_next)
        return await asyncio.wrap_future(done)

    def _do_next(self) -> None:
        """Do one job: that of the owner whose turn it is, if it is still wanted."""
        with self._lock:
            owner = next(iter(self._queues))
            queue = self._queues.pop(owner)
            done, work = queue.popleft()
            if queue:
                self._queues[owner] = queue  # its next turn comes after all others'
        if not done.set_running_or_notify_cancel():
            return
        try:
            result = work()
        except BaseException as error:  # noqa: BLE001 - as a pool of threads does: its caller's
            done.set_exception(error)
        else:
            done.set_result(result)
