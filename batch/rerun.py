"""Rows that a batch left without an answer are run again, as a batch of their own.

The end of a row and of a batch is final: results are numbered, already read by somebody, and in
files (rows R-02, R-03, R-33). So the retry of a batch is a new batch over the same input
file whose rows are those that failed, expired or were cancelled. It needs no
validation: its lines passed it.
"""

from __future__ import annotations

from sqlalchemy.ext.asyncio import AsyncSession

from api.batch_errors import BatchNotFound
from api.errors import Conflict, TokensRateLimited
from batch.intake import quota
from batch.intake.completion_window import seconds_of
from batch.intake.project_limits import add_batch
from batch.states import BatchStatus, RowStatus
from batch.transition import move
from store.models import Batch
from store.repositories import batch as batches
from store.repositories import event, progress
from store.repositories import file as files
from store.repositories import quota as quotas
from store.repositories import row as rows

REPEATABLE = frozenset({BatchStatus.COMPLETED, BatchStatus.EXPIRED, BatchStatus.CANCELLED})
"""Ends with rows; a batch that failed its validation has none."""

UNANSWERED = frozenset({RowStatus.ERRORED, RowStatus.EXPIRED, RowStatus.CANCELLED})


async def retry_failed(
    session: AsyncSession,
    project_id: str,
    batch_id: str,
    *,
    key_id: str | None = None,
    enqueued_token_limit: int | None = None,
) -> Batch:
    """A new batch, `in_progress`, over the unanswered rows of one that is over.

    A batch has one retry: asked again, the same one is returned, so that a repeated request never
    runs a line twice. What fails in the retry is retried by retrying the retry. The caller wakes
    the dispatchers after the commit.

    Args:
        session: An open transaction.
        project_id: Whose batch it must be.
        batch_id: The batch that is over.
        key_id: Whom the retry belongs to; the key of the batch it repeats if not said.
        enqueued_token_limit: Quota of projects that have none of their own; none: no limit.

    Raises:
        BatchNotFound: No such batch in the project.
        Conflict: It is not over, has no such lines, or its input file is gone.
        TooManyBatches: The project has as many as it may.
        TokensRateLimited: The project has too many tokens enqueued (row B-31).
    """
    source = await batches.lock(session, batch_id)
    if source is None or source.project_id != project_id:
        raise BatchNotFound(batch_id)
    earlier = await progress.retry_of(session, batch_id)
    if earlier is not None:
        return earlier
    if source.status not in REPEATABLE:
        raise Conflict(
            f"Cannot retry a batch with status '{source.status}'.",
            current=source.status,
            expected=tuple(sorted(REPEATABLE)),
        )
    if source.num_failed == 0:
        raise Conflict("Every line of this batch was answered: there is nothing to retry.")
    if await files.get(session, project_id, source.input_file_id, lock=True) is None:
        raise Conflict(f"The input file {source.input_file_id} of this batch is gone.")
    await _check_quota(session, source, enqueued_token_limit)
    retry = await add_batch(
        session,
        project_id,
        key_id=key_id or source.key_id,
        endpoint=source.endpoint,
        completion_window=source.completion_window,
        completion_window_s=seconds_of(source.completion_window),
        input_file_id=source.input_file_id,
        metadata=source.batch_metadata,
        output_expires_after_s=source.output_expires_after_s,
        priority=source.priority,
        webhook_endpoints=source.webhook_endpoints,
        retry_of=source.id,
    )
    num_rows, num_repeats = await rows.copy(session, source.id, retry.id, statuses=UNANSWERED)
    moved = await move(
        session,
        retry.id,
        BatchStatus.IN_PROGRESS,
        values={"num_total": num_rows, "num_repeats": num_repeats, "model": source.model},
        detail={"num_rows": num_rows, "retry_of": source.id},
    )
    if moved is None or num_rows != source.num_failed:
        raise RuntimeError(f"{retry.id}: {num_rows} rows for {source.num_failed} failed rows")
    await event.append(session, source.id, "retried", detail={"retry": retry.id})
    return moved


async def _check_quota(session: AsyncSession, source: Batch, default_limit: int | None) -> None:
    num_tokens = await quotas.tokens_of_rows(session, source.id, sorted(UNANSWERED))
    why = await quota.why_full(
        session, source.project_id, source.model or "", num_tokens, default_limit=default_limit
    )
    if why is not None:
        raise TokensRateLimited(why, code=quota.CODE, headers={"retry-after": "60"})
