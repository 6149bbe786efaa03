"""What a project may have at once, however it comes by it: batches, and stored bytes of any kind.

Decided when something is added, under a lock, so that two at once cannot both take the last place.
Nothing is reserved and nothing given back: what has ended, was deleted or has expired does not
count. Output files and answers count once they are there; they are never refused. Parts of an
upload count until they are a file.
"""

from __future__ import annotations

import time
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Final
from weakref import WeakKeyDictionary

from sqlalchemy.ext.asyncio import AsyncSession

from api.batch_errors import StorageQuotaExceeded, TooManyBatches
from store.models import Batch
from store.repositories import batch as batches
from store.repositories import quota as quotas
from store.repositories.batch import NoRoom, Room
from store.repositories.quota import BatchUse

LIVE_BATCHES: Final = 10_000
BATCHES_PER_HOUR: Final = 10_000
"""Of projects without limits of their own: some minutes of work for the stages, whatever is in the
batches."""


KEPT_S: Final = 60.0
"""For so long a count is gone on from. It would be right for ever; this bounds what a batch that
was added past the count, by a gateway of an older version, can spoil."""


@dataclass(frozen=True, slots=True)
class _Kept:
    use: BatchUse
    until_s: float


_KEPT: WeakKeyDictionary[object, dict[str, _Kept]] = WeakKeyDictionary()


async def add_batch(session: AsyncSession, project_id: str, **columns: Any) -> Batch:
    """Add a batch that the project may have: see `store.repositories.batch.add`.

    What the project has is counted only where the last count of this process, and all that was
    made since, leave no room: so a creation costs the same however many batches there are.

    Raises:
        TooManyBatches: It has as many live ones, or made as many within an hour.
    """
    kept = _KEPT.setdefault(session.get_bind(), {})
    known = kept.get(project_id)
    use = known.use if known is not None and time.monotonic() < known.until_s else None
    while True:
        if use is not None:
            with suppress(NoRoom):
                room = Room(use, LIVE_BATCHES, BATCHES_PER_HOUR)
                return await batches.add(session, project_id=project_id, room=room, **columns)
        use = await quotas.batch_use(session, project_id)
        _check(use)
        kept[project_id] = _Kept(use, time.monotonic() + KEPT_S)


def _check(use: BatchUse) -> None:
    limit = LIVE_BATCHES if use.max_live is None else use.max_live
    if use.num_live >= limit:
        raise TooManyBatches(
            f"This project has {use.num_live:,} batches that have not ended; the limit is "
            f"{limit:,}."
        )
    limit = BATCHES_PER_HOUR if use.max_of_hour is None else use.max_of_hour
    if use.num_of_hour >= limit:
        raise TooManyBatches(
            f"This project created {use.num_of_hour:,} batches within an hour; the limit is "
            f"{limit:,}."
        )


async def check_storage(session: AsyncSession, project_id: str, num_bytes: int) -> None:
    """Refuse so many more bytes than the project may store; add them in the same transaction.

    Raises:
        StorageQuotaExceeded: It would store more than it may.
    """
    project = await quotas.find_project(session, project_id)
    if project.stored_bytes is None:
        return
    await quotas.lock_project(session, project_id)
    stored = await quotas.stored_bytes(session, project_id)
    if stored + num_bytes > project.stored_bytes:
        raise StorageQuotaExceeded(
            f"This project stores {stored:,} bytes of files, responses and conversations; the "
            f"limit is {project.stored_bytes:,}. Delete some, or wait until some expire."
        )
