"""Queries about results: the one fenced write, and reading them back in order."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from itertools import accumulate

from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncSession

from store.repositories.statements import array_literal
from store.states import RowStatus

EXPORT_ROWS = 2000
EXPORT_BYTES = 4 * 1024**2
"""What an export reads at once: so many lines, and none after so many bytes."""


@dataclass(frozen=True, slots=True)
class NewResult:
    """The end of one row.

    Attributes:
        status: The terminal row status it enters.
        line: Its line of the output file (`succeeded`) or of the error file (every other one).
        took_ms: From sending its last attempt to the engine until the answer; none without one.
    """

    row_id: int
    batch_id: str
    status: str
    line: bytes
    prompt_tokens: int = 0
    cached_tokens: int = 0
    completion_tokens: int = 0
    reasoning_tokens: int = 0
    took_ms: int | None = None


@dataclass(frozen=True)
class Written:
    """What a write came to.

    Attributes:
        num_written: Results accepted.
        num_fenced: Results of rows that were not ours any more, or had one already.
        closed: Batches (id, status) whose last open row was closed by this write.
    """

    num_written: int
    num_fenced: int
    closed: tuple[tuple[str, str], ...]


# Lock order: batches by id, then their rows. See store.repositories.batch.lock.
# A statement of its own: results are written and dated after the lock is held, so that instants
# grow with the numbers whichever transaction began first.
_LOCK = text("SELECT id FROM batches WHERE id = ANY(:ids) ORDER BY id FOR UPDATE")

_WRITE = text(
    """
    WITH incoming AS (
      SELECT *, substring(CAST(:lines AS bytea) FROM t.first_byte FOR t.num_bytes) AS line
      FROM unnest(
        CAST(:row_ids AS bigint[]), CAST(:statuses AS text[]), CAST(:first_bytes AS int[]),
        CAST(:nums_bytes AS int[]), CAST(:prompt AS int[]), CAST(:cached AS int[]),
        CAST(:completion AS int[]), CAST(:reasoning AS int[]), CAST(:took_ms AS int[]))
      WITH ORDINALITY AS t(row_id, status, first_byte, num_bytes, prompt, cached, completion,
                           reasoning, took_ms, place)
    ), fenced AS (
      UPDATE batch_rows r
      SET status = i.status, dispatcher_id = NULL, claim_id = NULL, available_at = NULL
      FROM incoming i
      WHERE r.id = i.row_id AND r.status = :held
        AND r.dispatcher_id IS NOT DISTINCT FROM :dispatcher_id
      RETURNING r.id, r.batch_id, i.status, i.line, i.prompt, i.cached, i.completion,
                i.reasoning, i.took_ms, i.place
    ), sums AS (
      SELECT batch_id, count(*) AS n, count(*) FILTER (WHERE status = 'succeeded') AS succeeded,
             count(*) FILTER (WHERE status IN ('cancelled', 'expired')) AS stopped,
             sum(prompt) AS prompt, sum(cached) AS cached, sum(completion) AS completion,
             sum(reasoning) AS reasoning
      FROM fenced GROUP BY batch_id
    ), counted AS (
      UPDATE batches b
      SET num_completed = b.num_completed + s.succeeded,
          num_failed = b.num_failed + s.n - s.succeeded,
          num_stopped = b.num_stopped + s.stopped,
          num_results = b.num_results + s.n,
          prompt_tokens = b.prompt_tokens + s.prompt,
          cached_tokens = b.cached_tokens + s.cached,
          completion_tokens = b.completion_tokens + s.completion,
          reasoning_tokens = b.reasoning_tokens + s.reasoning
      FROM sums s WHERE b.id = s.batch_id
      RETURNING b.id, b.status, b.num_results - s.n AS before,
                b.num_completed + b.num_failed = b.num_total AS closed
    ), written AS (
      INSERT INTO row_results (row_id, batch_id, seq, succeeded, line, prompt_tokens,
                               cached_tokens, completion_tokens, created_at, took_ms)
      SELECT f.id, f.batch_id,
             c.before + row_number() OVER (PARTITION BY f.batch_id ORDER BY f.place),
             f.status = 'succeeded', f.line, f.prompt, f.cached, f.completion,
             statement_timestamp(), f.took_ms
      FROM fenced f JOIN counted c ON c.id = f.batch_id
      RETURNING row_id
    )
    SELECT (SELECT count(*) FROM written) AS num_written, c.id, c.status
    FROM (SELECT 1) one LEFT JOIN counted c ON c.closed
    """
)


async def write(
    session: AsyncSession, results: Sequence[NewResult], *, dispatcher_id: str | None
) -> Written:
    """Close rows and store their lines, numbered per batch, in one fenced statement.

    Args:
        session: An open transaction.
        results: At most one per row.
        dispatcher_id: The lease under which the rows are held; none for rows that are pending
            and will never run.

    Only rows that are still held so are written: a second result of a row, or one under a lost
    lease, is refused and counted.
    """
    await session.execute(_LOCK, {"ids": sorted({result.batch_id for result in results})})
    nums_bytes = [len(result.line) for result in results]
    found = await session.execute(
        _WRITE,
        {
            "dispatcher_id": dispatcher_id,
            "held": RowStatus.PENDING if dispatcher_id is None else RowStatus.LEASED,
            "row_ids": array_literal(result.row_id for result in results),
            "statuses": array_literal(result.status for result in results),
            "lines": b"".join([result.line for result in results]),
            "first_bytes": array_literal(accumulate(nums_bytes[:-1], initial=1)),
            "nums_bytes": array_literal(nums_bytes),
            "prompt": array_literal(result.prompt_tokens for result in results),
            "cached": array_literal(result.cached_tokens for result in results),
            "completion": array_literal(result.completion_tokens for result in results),
            "reasoning": array_literal(result.reasoning_tokens for result in results),
            "took_ms": array_literal(
                "NULL" if result.took_ms is None else result.took_ms for result in results
            ),
        },
    )
    rows = found.all()
    num_written = int(rows[0][0])
    return Written(
        num_written=num_written,
        num_fenced=len(results) - num_written,
        closed=tuple((batch_id, status) for _, batch_id, status in rows if batch_id is not None),
    )


@dataclass(frozen=True, slots=True)
class NumberedLine:
    """One result as readers see it: its number in the batch, where it belongs, its line."""

    seq: int
    succeeded: bool
    line: bytes


async def after(
    session: AsyncSession,
    batch_id: str,
    *,
    seq: int,
    succeeded: bool | None,
    max_lines: int,
    max_bytes: int,
) -> list[NumberedLine]:
    """The batch's results that follow number `seq`, in order.

    Args:
        session: An open transaction.
        batch_id: Which batch.
        seq: The last number that the reader has; 0 for none.
        succeeded: Only lines of the output file, or only those of the error file; None: both.
        max_lines: At most so many.
        max_bytes: None is begun after so many bytes; the first is given whatever its size.
    """
    found = await session.execute(
        _AFTER,
        {
            "id": batch_id,
            "seq": seq,
            "succeeded": succeeded,
            "max_lines": max_lines,
            "max_bytes": max_bytes,
        },
    )
    return [NumberedLine(one.seq, one.succeeded, bytes(one.line)) for one in found]


# Lengths are read without the lines: long ones are stored apart.
_AFTER = text(
    """
    SELECT seq, succeeded, line FROM row_results
    WHERE batch_id = :id AND seq > :seq
      AND (CAST(:succeeded AS boolean) IS NULL OR succeeded = :succeeded)
      AND seq <= (SELECT max(seq) FROM (
        SELECT seq, sum(num_bytes) OVER (ORDER BY seq) - num_bytes AS before FROM (
          SELECT seq, octet_length(line) AS num_bytes FROM row_results
          WHERE batch_id = :id AND seq > :seq
            AND (CAST(:succeeded AS boolean) IS NULL OR succeeded = :succeeded)
          ORDER BY seq LIMIT :max_lines) lengths) sums
        WHERE before < :max_bytes)
    ORDER BY seq
    """
)


@dataclass(frozen=True, slots=True)
class Lines:
    """Lines with their line ends, how many they are, and the number of the last one."""

    last_seq: int
    num: int
    data: bytes


async def lines(
    session: AsyncSession,
    batch_id: str,
    *,
    succeeded: bool,
    seq: int = 0,
    max_bytes: int = EXPORT_BYTES,
) -> AsyncIterator[Lines]:
    """The batch's output or error lines after number `seq`, in order, in large chunks.

    The chunks follow from the results and where they begin; none grows after `max_bytes`. Memory
    does not grow with the batch, nor with the length of its lines but for a single one.
    """
    while found := await after(
        session,
        batch_id,
        seq=seq,
        succeeded=succeeded,
        max_lines=EXPORT_ROWS,
        max_bytes=max_bytes,
    ):
        seq = found[-1].seq
        yield Lines(seq, len(found), b"\n".join([one.line for one in found]) + b"\n")


async def whole(
    session: AsyncSession, batch_ids: Sequence[str], *, max_bytes: int
) -> dict[tuple[str, bool], Lines]:
    """All output lines (true) and error lines of several batches, of as many as fit.

    A batch whose results would make it more than `max_bytes` has none here.
    """
    found = await session.execute(_WHOLE, {"ids": list(batch_ids), "max_bytes": max_bytes})
    lines: dict[tuple[str, bool], list[NumberedLine]] = {}
    for batch_id, seq, succeeded, line in found:
        lines.setdefault((batch_id, succeeded), []).append(NumberedLine(seq, succeeded, line))
    return {
        name: Lines(
            all_of[-1].seq, len(all_of), b"".join([bytes(one.line) + b"\n" for one in all_of])
        )
        for name, all_of in lines.items()
    }


_WHOLE = text(
    """
    WITH sizes AS (
      SELECT r.batch_id, sum(octet_length(r.line)) AS num_bytes FROM row_results r
      WHERE r.batch_id = ANY(:ids) GROUP BY r.batch_id
    ), fitting AS (
      SELECT batch_id FROM (
        SELECT batch_id, sum(num_bytes) OVER (ORDER BY num_bytes, batch_id) AS until FROM sizes) s
      WHERE until <= :max_bytes
    )
    SELECT r.batch_id, r.seq, r.succeeded, r.line
    FROM row_results r JOIN fitting USING (batch_id)
    ORDER BY r.batch_id, r.seq
    """
)


async def take_pending(
    session: AsyncSession, batch_id: str, *, limit: int
) -> list[tuple[int, str]]:
    """Lock up to `limit` pending rows: (id, custom_id). For rows that will never run."""
    found = await session.execute(
        text(
            """
            SELECT id, custom_id FROM batch_rows
            WHERE batch_id = :batch_id AND status = 'pending'
            ORDER BY prefix_hash, line_no LIMIT :limit FOR UPDATE
            """
        ),
        {"batch_id": batch_id, "limit": limit},
    )
    return [(row_id, custom_id) for row_id, custom_id in found]


async def forget(session: AsyncSession, batch_id: str) -> None:
    """Remove a batch's results, which were copied to where they belong."""
    await session.execute(
        text("DELETE FROM row_results WHERE batch_id = :batch_id"), {"batch_id": batch_id}
    )
