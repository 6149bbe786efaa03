"""What is collected: a duty for each kind of object, none of which waits for another.

    responses, conversations   past their lifetime: prompts and answers go when we said so
    files, parts, arrivals     bytes that nobody can read any more
    keys, receipts, deliveries what is remembered for some days
    batches                    everything of a batch after its retention period
    leftovers                  of uploads that a crash cut off

All run at the same time, each within its own budget (batch/removal.py) and with its own failure.
What is overdue is counted in the database (store/repositories/overdue.py).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping
from typing import Final

from batch.files import FileStore
from batch.finish import collect, retain
from batch.intake import arrivals, idempotency, parted_upload
from batch.webhooks.deliver import collect_deliveries
from service.clock import Clock
from store.session import Database

INTERRUPTED_AFTER_S: Final = 86400.0
DUTY_LIMIT_S: Final = 75.0
"""For one that does not end by its budget, below the time that a stage may take."""

logger = logging.getLogger(__name__)

Duty = Callable[[], Awaitable[object]]


def duties(
    database: Database, files: FileStore, clock: Clock, *, retention_s: float
) -> dict[str, Duty]:
    """Each duty by its name."""
    return {
        "responses": lambda: collect.collect_responses(database),
        "conversations": lambda: collect.collect_conversations(database),
        "files": lambda: collect.collect_files(database, files),
        "parts": lambda: parted_upload.collect_parts(database, files),
        "arrivals": lambda: arrivals.collect_arrivals(database, files),
        "keys": lambda: idempotency.collect_keys(database),
        "receipts": lambda: idempotency.collect_receipts(database),
        "deliveries": lambda: collect_deliveries(database),
        "batches": lambda: retain.retire(database, clock, retention_s=retention_s),
        "leftovers": lambda: files.discard_interrupted(older_than_s=INTERRUPTED_AFTER_S),
    }


async def fulfil(named: Mapping[str, Duty], *, limit_s: float = DUTY_LIMIT_S) -> None:
    """Run every duty to its end, whatever becomes of the others.

    Raises:
        Exception: What the first that failed raised, after all have ended.
    """

    async def one(duty: Duty) -> None:
        async with asyncio.timeout(limit_s):
            await duty()

    ended = await asyncio.gather(*map(one, named.values()), return_exceptions=True)
    failed = {name: error for name, error in zip(named, ended, strict=True) if error is not None}
    for name, error in failed.items():
        logger.error("collection of %s failed", name, exc_info=error)
    for error in failed.values():
        raise error
