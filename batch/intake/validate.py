"""Stage 3 of a batch's life: its input file is read once, and becomes rows or errors.

Rows appear together with the status `in_progress`, in one transaction: a batch with one bad line
has none, and a validation that dies leaves none behind. It may run twice: a second run at the
same time finds the validation taken, a later one finds another status.

It may take as long as the batch's window: it looks now and then whether the batch
still wants it, which also tells the server that it is alive. While the file is read only an
advisory lock is held, and no table: a migration need not wait for it.
"""

from __future__ import annotations

import asyncio
import faulthandler
import logging
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from typing import Final

from sqlalchemy.ext.asyncio import AsyncSession

from api.batch_errors import StoredObjectMissing
from api.numbers import ModelSizes, largest_sizes
from batch.files import FileStore
from batch.intake import quota
from batch.intake.check import CheckedRow, CheckedRows, CheckReport, FileCheck
from batch.intake.line_error import LineError
from batch.states import BatchStatus
from batch.transition import move_all
from engine_adapter.client.aliases import Aliases, sizes_of_aliases, stands_for
from engine_adapter.client.base import EMBEDDINGS_PATH
from service.clock import Clock, SystemClock
from store.models import Batch, File
from store.repositories import batch as batches
from store.repositories import row as rows
from store.repositories import validation
from store.repositories.batch import Move
from store.session import Database

logger = logging.getLogger(__name__)

IDLE_LIMIT_S: Final = 300.0
"""The server gives up a validation that it has heard nothing of for this long."""

READ_LIMIT_S: Final = 60.0
"""A file store that gives nothing for this long ends the run; the sweep asks for another."""

POLL_INTERVAL_S: Final = 5.0
"""How often it looks whether the batch still wants it."""

_STDERR_FD = 2


class _Overtaken(Exception):
    """The batch left `validating` while its file was read: nothing of this run may stay."""


async def validate(
    db: Database,
    file_store: FileStore,
    batch_id: str,
    *,
    enqueued_token_limit: int | None = None,
    aliases: Aliases | None = None,
    clock: Clock | None = None,
    watchdog: bool = False,
) -> BatchStatus | None:
    """Read the batch's file and move the batch on.

    Args:
        db: The database.
        file_store: Where the file is.
        batch_id: The batch.
        enqueued_token_limit: Quota of projects that have none of their own; none: no limit.
        aliases: Further names of models, by what they stand for.
        clock: Says when to look.
        watchdog: End the whole process (with a traceback of every thread) when this has not come
            to a look for `IDLE_LIMIT_S`. For a process that does nothing else.

    Returns:
        The status that was entered, `in_progress` or `failed`; None where there was nothing to
        do (unknown batch, not validating, or another run is at it).
    """
    aliases = aliases or {}
    try:
        async with db.unit_of_work() as holder:
            if not await validation.try_exclusive(holder, batch_id, idle_limit_s=IDLE_LIMIT_S):
                return None
            async with db.unit_of_work() as session:
                batch = await batches.find(session, batch_id)
                if batch is None or batch.status != BatchStatus.VALIDATING:
                    return None
                file = await session.get_one(File, batch.input_file_id)
                models = await Models.read(session, aliases)
                check = await models.check(session, batch.project_id, batch.endpoint)
            watch = _Watch(db, holder, batch_id, clock or SystemClock(), watchdog=watchdog)
            report = await _read(file_store, file, check, watch)
            models.name(report)
            async with db.unit_of_work() as session:
                await check_quotas(session, [(batch.project_id, report)], enqueued_token_limit)
                return await _conclude(session, batch_id, report)
    except _Overtaken:
        logger.info("validation of %s was overtaken", batch_id)
        return None


@dataclass(frozen=True)
class Models:
    """What is known of the models there are, for checks of files.

    Attributes:
        aliases: Further names, by what they stand for.
        sizes: What engines said of each.
    """

    aliases: Aliases
    sizes: Mapping[str, ModelSizes]

    @classmethod
    async def read(cls, session: AsyncSession, aliases: Aliases) -> Models:
        """As the engines are now."""
        sizes = largest_sizes(await validation.model_sizes(session))
        return cls(aliases, sizes | sizes_of_aliases(aliases, sizes))

    async def check(self, session: AsyncSession, project_id: str, endpoint: str) -> FileCheck:
        """A check of a project's file for an endpoint."""
        embeds = endpoint == EMBEDDINGS_PATH
        served = await validation.served_models(
            session, project_id, embeds=embeds, aliases=self.aliases
        )
        return FileCheck(endpoint, served_models=served, sizes=self.sizes)

    def name(self, report: CheckReport) -> None:
        """Put the model in the place of its alias."""
        if report.model is not None:
            report.model = stands_for(report.model, self.aliases, self.sizes)


class _Watch:
    """Whether to go on; each check keeps alive the transaction of `holder`, which has the lock."""

    def __init__(
        self, db: Database, holder: AsyncSession, batch_id: str, clock: Clock, *, watchdog: bool
    ) -> None:
        self._db = db
        self._holder = holder
        self._batch_id = batch_id
        self._clock = clock
        self._watchdog = watchdog
        self._next_poll_s = clock.monotonic()

    async def poll(self) -> None:
        """Look, if it is time for it.

        Raises:
            _Overtaken: The batch was cancelled or its window has ended.
        """
        now_s = self._clock.monotonic()
        if now_s < self._next_poll_s:
            return
        if self._watchdog:
            faulthandler.dump_traceback_later(IDLE_LIMIT_S, exit=True, file=_STDERR_FD)
        await validation.be_heard(self._holder)
        async with self._db.unit_of_work() as session:
            if not await validation.is_wanted(session, self._batch_id):
                raise _Overtaken
        self._next_poll_s = now_s + POLL_INTERVAL_S

    def end(self) -> None:
        """Nothing is watched any more."""
        if self._watchdog:
            faulthandler.cancel_dump_traceback_later()


async def _read(file_store: FileStore, file: File, check: FileCheck, watch: _Watch) -> CheckReport:
    try:
        async with aclosing(file_store.stream(file.storage_key)) as chunks:
            while True:
                async with asyncio.timeout(READ_LIMIT_S):
                    chunk = await anext(chunks, None)
                if chunk is None:
                    return check.finish()
                check.feed(chunk)
                await watch.poll()
    except StoredObjectMissing:
        lost = CheckReport()
        lost.add(LineError("input_file_missing", "The content of the input file is gone."))
        return lost
    finally:
        watch.end()


async def check_quotas(
    session: AsyncSession,
    reports: Sequence[tuple[str, CheckReport]],
    default_limit: int | None,
) -> None:
    """Add its fault to each report, beside its project, that has more tokens than may wait."""
    asking, wanted = [], []
    for project_id, report in reports:
        if report.ok and report.model is not None:
            asking.append(report)
            wanted.append(quota.Wanted(project_id, report.model, report.rows.num_tokens))
    reasons = await quota.reasons(session, wanted, default_limit=default_limit)
    for report, why in zip(asking, reasons, strict=True):
        if why is not None:
            report.add(LineError(quota.CODE, why))


async def _conclude(session: AsyncSession, batch_id: str, report: CheckReport) -> BatchStatus:
    """Store what was found. The rows go first: their COPY must not hold the batch's lock."""
    if report.ok:
        batch = await session.get_one(Batch, batch_id)
        new = _new_rows(report.rows, reuses=batch.reuse_s is not None)
        await rows.ingest(session, batch_id, new)
    target = conclusion(batch_id, report)
    if not await move_all(session, [target]):
        raise _Overtaken
    return BatchStatus(target.target)


def conclusion(batch_id: str, report: CheckReport) -> Move:
    """What becomes of the batch by what was found."""
    if report.ok:
        return Move(
            batch_id,
            BatchStatus.IN_PROGRESS,
            {
                "num_total": len(report.rows),
                "num_repeats": report.rows.num_repeats,
                "model": report.model,
            },
            {"num_rows": len(report.rows), "num_bytes": report.num_bytes}
            | ({"num_repeats": report.rows.num_repeats} if report.rows.num_repeats else {}),
        )
    return Move(
        batch_id,
        BatchStatus.FAILED,
        {"errors": [fault.as_wire() for fault in report.faults], "model": report.model},
        {"num_errors": report.num_faults, "num_lines": report.num_lines},
    )


async def _new_rows(checked: CheckedRows, *, reuses: bool) -> AsyncIterator[rows.NewRow]:
    for row in checked:
        yield new_row(row, reuses=reuses)


def new_row(row: CheckedRow, *, reuses: bool = False) -> rows.NewRow:
    """A checked line as it is stored; what it asks too, where answers are used again."""
    return rows.NewRow(
        row.line_no,
        row.custom_id,
        row.offset_bytes,
        row.length_bytes,
        row.prefix_hash,
        row.num_tokens,
        row.same_as,
        row.digest if reuses else None,
    )
