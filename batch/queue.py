"""The one place that knows the names of the Celery tasks, and how one is asked for.

A message is a wake-up and says nothing: what is to be done stands in Postgres, where a worker
claims it. So one that waits is as good as many, and is all that a queue ever holds: none ages
behind others, however much there is to do and however long the workers were away. A message that
is lost costs one sweep period.

Sent after the transaction that made it necessary has committed.

| task | what makes it necessary | what bounds its messages |
| --- | --- | --- |
| `batch.stages` | a batch wants a stage | none is sent while one waits |
| `batch.deliver` | a webhook is due | the same |
| `batch.dispatch` | rows wait, an engine has no dispatcher | then one for each engine |
| `batch.sweep`, `batch.gc_files` | the clock | the same (batch/worker/beat.py) |
"""

from __future__ import annotations

import asyncio
import logging
from typing import Any, Final, Protocol

from kombu.exceptions import ChannelError, OperationalError

from service.bulkhead import Bulkhead

logger = logging.getLogger(__name__)

STAGES: Final = "batch.stages"
DISPATCH: Final = "batch.dispatch"
DELIVER: Final = "batch.deliver"
SWEEP: Final = "batch.sweep"
GC_FILES: Final = "batch.gc_files"

TASKS: Final = (STAGES, DISPATCH, DELIVER, SWEEP, GC_FILES)
"""Each has a queue of its own, of the same name."""

SEND_LIMIT_S: Final = 1.0
"""A caller waits no longer than this for a broker that does not answer."""

REST_S: Final = 0.05
"""What is made within so long of a message is in one more message together. A worker takes what is
due in one go, so that each of them costs it less."""


class Queue(Protocol):
    """How a worker is woken. It does not raise when the broker is away."""

    async def wake(self, task: str, num: int = 1) -> None:
        """Have a task run soon, in `num` processes at most; what it does stands in Postgres."""
        ...


class CeleryQueue:
    """Sends through the broker.

    A broker that cannot be reached is logged, not raised: the sweep repairs it, and the caller's
    own transaction has committed already.

    Attributes:
        sending: What is on its way, or was sent a moment ago, by task.
    """

    def __init__(self, app: Any) -> None:
        self._app = app
        self.sending: dict[str, asyncio.Future[None]] = {}
        self._again: set[str] = set()
        self._threads = Bulkhead("broker", len(TASKS))

    async def wake(self, task: str, num: int = 1) -> None:
        """Send the messages, unless one waits already or was sent a moment ago."""
        if task in self.sending:
            # A worker may have looked already for the message that was on its way when the caller
            # committed: so one is sent again afterwards, for all who came meanwhile.
            self._again.add(task)
            return
        sent = asyncio.Event()
        self.sending[task] = asyncio.ensure_future(self._send(task, num, sent))
        # Publishing blocks for about a millisecond, and for seconds where the broker is away: its
        # thread is left to itself then, the only one of this task and of no other kind of work.
        try:
            async with asyncio.timeout(SEND_LIMIT_S):
                await sent.wait()
        except TimeoutError:
            logger.warning("the broker does not answer, %s is left to the sweep", task)

    async def _send(self, task: str, num: int, sent: asyncio.Event) -> None:
        try:
            while True:
                self._again.discard(task)
                await self._threads.run(send, self._app, task, num)
                sent.set()
                await asyncio.sleep(REST_S)
                if task not in self._again:
                    return
        except OperationalError as lost:
            why = type(lost).__name__
            logger.warning("broker unreachable, %s left to the sweep: %s", task, why)
        finally:
            sent.set()
            del self.sending[task]


def send(app: Any, task: str, num: int = 1) -> bool:
    """Send `num` messages of a task unless one waits for a worker; whether they were sent.

    Raises:
        kombu.exceptions.OperationalError: The broker cannot be reached.
    """
    with app.producer_pool.acquire(block=True) as producer:
        if num_waiting(app, producer, task):
            return False
        for _ in range(num):
            app.send_task(task, producer=producer, retry=False)
    return True


def num_waiting(app: Any, producer: Any, task: str) -> int:
    """How many messages of a task no worker has taken.

    Raises:
        kombu.exceptions.OperationalError: The broker cannot be reached.
    """
    connection = producer.connection
    with connection._reraise_as_library_errors():
        try:
            return int(producer.channel.queue_declare(queue=task, passive=True).message_count)
        except ChannelError:  # Valkey knows no empty queue
            return 0
