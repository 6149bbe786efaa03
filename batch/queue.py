"""The one place that knows the names of the Celery tasks.

Messages carry ids only and are sent after the transaction that made them necessary has committed.
A message that is lost costs one sweep period: whatever it was about is found again in Postgres.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, Protocol

from kombu.exceptions import OperationalError

logger = logging.getLogger(__name__)

VALIDATE = "batch.validate"
FINALIZE = "batch.finalize"
DISPATCH = "batch.dispatch"
DELIVER = "batch.deliver"
SWEEP = "batch.sweep"
GC_FILES = "batch.gc_files"

SEND_LIMIT_S = 1.0
"""A caller waits no longer than this for a broker that does not answer."""

MESSAGE_LIFE_S = 60.0
"""An older message is dropped unread: the sweep has asked again by then. So a worker that was away
for an hour does not find an hour of repeated questions."""

STAGES_QUEUE = "stages"
DISPATCH_QUEUE = "dispatch"
SWEEP_QUEUE = "sweep"
"""Of its own: what repairs must not wait behind what it repairs."""

TASK_ROUTES = {
    VALIDATE: {"queue": STAGES_QUEUE},
    FINALIZE: {"queue": STAGES_QUEUE},
    DELIVER: {"queue": STAGES_QUEUE},
    SWEEP: {"queue": SWEEP_QUEUE},
    GC_FILES: {"queue": STAGES_QUEUE},
    DISPATCH: {"queue": DISPATCH_QUEUE},
}


class Queue(Protocol):
    """How a stage asks for the next one. No method raises when the broker is away."""

    async def enqueue_validate(self, batch_id: str) -> None:
        """Ask for a batch to be validated."""
        ...

    async def enqueue_finalize(self, batch_id: str) -> None:
        """Ask for a batch's rows to be closed and its files to be written."""
        ...

    async def wake_dispatchers(self, engine_urls: Iterable[str]) -> None:
        """Ask for a dispatcher for each engine; one that is running already is left alone."""
        ...

    async def enqueue_deliver(self) -> None:
        """Ask for webhooks that are due to be delivered."""
        ...


class CeleryQueue:
    """Sends through the broker.

    A broker that cannot be reached is logged, not raised: the sweep repairs it, and the caller's
    own transaction has committed already.
    """

    def __init__(self, app: Any) -> None:
        self._app = app

    async def enqueue_validate(self, batch_id: str) -> None:
        """Send `validate(batch)`."""
        await self._send(VALIDATE, batch_id)

    async def enqueue_finalize(self, batch_id: str) -> None:
        """Send `finalize(batch)`."""
        await self._send(FINALIZE, batch_id)

    async def wake_dispatchers(self, engine_urls: Iterable[str]) -> None:
        """Send `dispatch(engine)` for each engine."""
        for url in engine_urls:
            await self._send(DISPATCH, url)

    async def enqueue_deliver(self) -> None:
        """Send `deliver()`."""
        await self._send(DELIVER)

    async def _send(self, task: str, *arguments: str) -> None:
        # Publishing blocks for about a millisecond, and for seconds where the broker is away: its
        # thread is left to itself then. A message that goes out late does no harm.
        try:
            async with asyncio.timeout(SEND_LIMIT_S):
                await asyncio.to_thread(
                    self._app.send_task,
                    task,
                    args=arguments,
                    retry=False,
                    expires=MESSAGE_LIFE_S,
                )
        except (OperationalError, TimeoutError) as lost:
            logger.warning(
                "broker unreachable, %s(%s) left to the sweep: %s",
                task,
                ", ".join(arguments),
                type(lost).__name__,
            )


@dataclass
class MemoryQueue:
    """Remembers what was asked for: the fake of the seam.

    Attributes:
        sent: (task name, argument) in order.
    """

    sent: list[tuple[str, str]] = field(default_factory=list)

    async def enqueue_validate(self, batch_id: str) -> None:
        """Remember it."""
        self.sent.append((VALIDATE, batch_id))

    async def enqueue_finalize(self, batch_id: str) -> None:
        """Remember it."""
        self.sent.append((FINALIZE, batch_id))

    async def wake_dispatchers(self, engine_urls: Iterable[str]) -> None:
        """Remember it."""
        self.sent += [(DISPATCH, url) for url in engine_urls]

    async def enqueue_deliver(self) -> None:
        """Remember it."""
        self.sent.append((DELIVER, ""))

    def take(self) -> list[tuple[str, str]]:
        """Everything remembered so far, which is then forgotten."""
        taken, self.sent = self.sent, []
        return taken
