"""What has ended goes: results with their file, everything of a batch after its retention period.

Beside traffic: each step is a short transaction over at most `STEP_ROWS` rows, so nobody waits for
it, and a run that is cut off has lost nothing. It may run twice at the same time.
"""

from __future__ import annotations

from batch.removal import STEP_ROWS, Budget
from service.clock import Clock
from store.repositories import retention
from store.session import Database


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
    """Remove batches that ended so long ago; how many. And files whose bytes went so long ago.

    Each kind has a budget of its own, and files go whatever becomes of the batches.
    """
    try:
        budget = Budget.of(clock=clock)
        return await _retire_batches(database, budget, retention_s, step_rows)
    finally:
        budget = Budget.of(clock=clock)
        await _retire_files(database, budget, retention_s, step_rows)


async def _retire_batches(
    database: Database, budget: Budget, retention_s: float, step_rows: int
) -> int:
    """Remove batches that ended so long ago, the longest ended first; how many."""
    num_retired = 0
    while budget.left:
        async with database.unit_of_work() as session:
            batch_id = await retention.oldest_ended(session, older_than_s=retention_s)
        if batch_id is None:
            break
        num_rows = step_rows
        while num_rows == step_rows and budget.left:
            async with database.unit_of_work() as session:
                num_rows = await retention.forget_rows(session, batch_id, limit=step_rows)
        if num_rows < step_rows:
            async with database.unit_of_work() as session:
                num_retired += await retention.forget_batch(session, batch_id)
    return num_retired


async def _retire_files(
    database: Database, budget: Budget, retention_s: float, step_rows: int
) -> None:
    """Remove the records of files whose bytes went so long ago."""
    num_files = step_rows
    while num_files == step_rows and budget.left:
        async with database.unit_of_work() as session:
            num_files = await retention.forget_files(
                session, older_than_s=retention_s, limit=step_rows
            )
