"""What has ended goes: results with their file, everything of a batch after its retention period.

Beside traffic: each step is a short transaction over at most `STEP_ROWS` rows, so nobody waits for
it, and a run that is cut off has lost nothing. It may run twice at the same time.
"""

from __future__ import annotations

from typing import Final

from service.clock import Clock
from store.repositories import retention
from store.session import Database

STEP_ROWS: Final = 1000
RUN_S: Final = 45.0
"""A run does so much and leaves the rest to the next one."""


async def forget_results(database: Database, file_id: str, *, step_rows: int = STEP_ROWS) -> int:
    """Remove the results that a produced file was written from; how many.

    Args:
        database: The database.
        file_id: A deleted or expired file; one that no batch produced has none.
        step_rows: How many are removed at once.
    """
    async with database.unit_of_work() as session:
        source = await retention.results_of_file(session, file_id)
    if source is None:
        return 0
    num_forgotten, last_seq = 0, 0
    while True:
        async with database.unit_of_work() as session:
            seqs = await retention.forget_results(session, source, after=last_seq, limit=step_rows)
        num_forgotten += len(seqs)
        if len(seqs) < step_rows:
            return num_forgotten
        last_seq = max(seqs)


async def retire(
    database: Database, clock: Clock, *, retention_s: float, step_rows: int = STEP_ROWS
) -> int:
    """Remove batches that ended so long ago, and files whose bytes went so long ago; how many."""
    num_retired = 0
    until_s = clock.monotonic() + RUN_S
    while clock.monotonic() < until_s:
        async with database.unit_of_work() as session:
            batch_id = await retention.oldest_ended(session, older_than_s=retention_s)
        if batch_id is None:
            break
        while True:
            async with database.unit_of_work() as session:
                num_rows = await retention.forget_rows(session, batch_id, limit=step_rows)
            if num_rows < step_rows:
                break
        async with database.unit_of_work() as session:
            num_retired += await retention.forget_batch(session, batch_id)
    while clock.monotonic() < until_s:
        async with database.unit_of_work() as session:
            num_files = await retention.forget_files(
                session, older_than_s=retention_s, limit=step_rows
            )
        if num_files < step_rows:
            break
    return num_retired
