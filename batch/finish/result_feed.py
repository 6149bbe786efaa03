"""Results while the batch still runs: append-only, in the order of their numbers.

Invariant: a result's number is given under the batch row's lock and becomes visible with it, so a
reader that has every line up to a number never misses one below it; and a line never changes. The
lines of one kind, read from offset 0 to the end, are byte for byte the final file of that kind.
"""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Final

from sqlalchemy.exc import InterfaceError, OperationalError
from sqlalchemy.ext.asyncio import AsyncSession

from api.batch_errors import BatchNotFound, FileNotFound
from batch.states import TERMINAL_BATCH
from service.clock import Clock
from store.models import Batch
from store.repositories import batch as batches
from store.repositories import file as files
from store.repositories import result as results
from store.repositories.result import NumberedLine
from store.session import Database

logger = logging.getLogger(__name__)

MAX_PAGE_LINES: Final = 1000
MAX_PAGE_BYTES: Final = 4 * 1024 * 1024
POLL_INTERVAL_S: Final = 0.25
"""How often a feed asks whether there may be new results: no question to the database."""

FOLLOW_LINES: Final = 200


class ResultKind(StrEnum):
    """Which of a batch's two files a line belongs to."""

    OUTPUT = "output"
    ERROR = "error"


@dataclass(frozen=True)
class ResultPage:
    """Some results, and where the next page begins.

    Attributes:
        next_offset: What to ask for next; grows only.
        status: The batch's status when it was read.
        complete: No result will ever follow `next_offset`.
        is_cut: There may be more already.
    """

    lines: tuple[NumberedLine, ...]
    next_offset: int
    status: str
    complete: bool
    is_cut: bool = False


async def read_page(
    session: AsyncSession,
    project_id: str,
    batch_id: str,
    *,
    offset: int,
    limit: int,
    kind: ResultKind | None = None,
) -> ResultPage:
    """Up to `limit` results after number `offset`; fewer where they are large.

    Raises:
        BatchNotFound: No such batch in the project.
        FileNotFound: The batch is over and its file of such lines was deleted or has expired.
    """
    batch = await batches.get(session, project_id, batch_id)
    if batch is None:
        raise BatchNotFound(batch_id)
    await _check_retention(session, batch, kind)
    # Before the lines: whatever is numbered up to here is visible to the next statement.
    num_results = batch.num_results
    lines = await results.after(
        session,
        batch_id,
        seq=offset,
        succeeded=None if kind is None else kind is ResultKind.OUTPUT,
        max_lines=limit,
        max_bytes=MAX_PAGE_BYTES,
    )
    cut = len(lines) == limit or sum(len(one.line) for one in lines) >= MAX_PAGE_BYTES
    next_offset = max(offset, lines[-1].seq if lines else 0, 0 if cut else num_results)
    ended = batch.status in TERMINAL_BATCH
    return ResultPage(
        lines=tuple(lines),
        next_offset=next_offset,
        status=batch.status,
        complete=ended and next_offset >= num_results,
        is_cut=cut,
    )


async def follow(
    database: Database,
    clock: Clock,
    project_id: str,
    batch_id: str,
    *,
    offset: int,
    kind: ResultKind | None,
    version: Callable[[], int | None],
) -> AsyncIterator[ResultPage]:
    """Pages as results come, empty ones in between, until the last or until there is no version.

    Args:
        database: Where they are.
        clock: Says when to ask `version`.
        project_id: Of the batch.
        batch_id: Whose results they are.
        offset: Number of the last result that is known.
        kind: Those of one kind, or all.
        version: Another number whenever there may be more results, or the batch has gone on; none
            when it is time to end.
    """
    while (known := version()) is not None:
        try:
            async with database.unit_of_work() as session:
                page = await read_page(
                    session, project_id, batch_id, offset=offset, limit=FOLLOW_LINES, kind=kind
                )
        except (OperationalError, InterfaceError) as away:
            # The reader has every line up to `offset`: nothing is lost by waiting.
            logger.warning("results of %s: %s", batch_id, type(away.orig).__name__)
            await clock.sleep(POLL_INTERVAL_S)
            continue
        offset = page.next_offset
        yield page
        if page.complete:
            return
        while not page.is_cut and version() == known:
            await clock.sleep(POLL_INTERVAL_S)
            yield replace(page, lines=())


async def _check_retention(session: AsyncSession, batch: Batch, kind: ResultKind | None) -> None:
    """What may not be downloaded any more may not be read here either (row R-24)."""
    for file_kind, file_id in (
        (ResultKind.OUTPUT, batch.output_file_id),
        (ResultKind.ERROR, batch.error_file_id),
    ):
        if file_id is None or kind not in (None, file_kind):
            continue
        if await files.get(session, batch.project_id, file_id) is None:
            raise FileNotFound(file_id, param="kind")
