"""Small batches are validated together: one transaction reads what is known, one stores the rows.

A transaction, and a commit that the disk has to confirm, costs as much as the lines of dozens of
small files. Whatever is unusual about one of them is left to a validation of its own
(`batch/intake/validate.py`), which tells the caller what happened: a file that cannot be read in a
moment, a batch that was cancelled meanwhile or that another transaction has.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Collection, Mapping
from typing import Final

from api.batch_errors import StorageFull
from api.errors import ApiError
from batch.files import FileStore
from batch.intake.check import CheckReport, FileCheck
from batch.intake.validate import Models, check_quotas, conclusion, new_row
from batch.states import BatchStatus
from batch.transition import move_all
from engine_adapter.client.aliases import Aliases
from store.repositories import batch as batches
from store.repositories import row as rows
from store.repositories import validation
from store.session import Database

READ_LIMIT_S: Final = 2.0
"""Nobody waits longer for the file of another."""


async def validate_small(
    database: Database,
    file_store: FileStore,
    batch_ids: Collection[str],
    *,
    enqueued_token_limit: int | None = None,
    aliases: Aliases | None = None,
) -> dict[str, BatchStatus]:
    """Validate batches with small input files.

    Returns:
        What became of each, `in_progress` or `failed`; those that are left out are to be
        validated one by one.
    """
    async with database.unit_of_work() as session:
        inputs = await validation.inputs(session, batch_ids)
        models = await Models.read(session, aliases or {})
        checks = {
            (one.project_id, one.endpoint): await models.check(
                session, one.project_id, one.endpoint
            )
            for one in {(one.project_id, one.endpoint): one for one in inputs}.values()
        }
    found = await asyncio.gather(
        *(
            _read(file_store, one.storage_key, checks[one.project_id, one.endpoint].anew())
            for one in inputs
        )
    )
    reports = {one.batch_id: report for one, report in zip(inputs, found, strict=True) if report}
    for report in reports.values():
        models.name(report)
    owners = {one.batch_id: one.project_id for one in inputs}
    async with database.unit_of_work() as session:
        asking = [(owners[batch_id], report) for batch_id, report in reports.items()]
        await check_quotas(session, asking, enqueued_token_limit)
        ours = await batches.lock_all(session, reports, skip_locked=True)
        wanted = {
            batch_id: reports[batch_id]
            for batch_id, batch in ours.items()
            if batch.status == BatchStatus.VALIDATING
        }
        await rows.ingest_all(session, _rows(wanted))
        moved = await move_all(session, [conclusion(*one) for one in wanted.items()])
    return {batch.id: BatchStatus(batch.status) for batch in moved}


async def _read(file_store: FileStore, storage_key: str, check: FileCheck) -> CheckReport | None:
    try:
        async with asyncio.timeout(READ_LIMIT_S):
            async for chunk in file_store.stream(storage_key):
                check.feed(chunk)
    except StorageFull:
        raise
    except (ApiError, OSError):  # a time-out is one, too
        return None
    return check.finish()


async def _rows(reports: Mapping[str, CheckReport]) -> AsyncIterator[tuple[str, rows.NewRow]]:
    for batch_id, report in reports.items():
        if report.ok:
            for row in report.rows:
                yield batch_id, new_row(row)
