"""Queries about long stages: which are long, and whose is running."""

from __future__ import annotations

from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncSession

LONG = (
    "(f.size_bytes >= :long_bytes OR b.num_total >= :long_rows"
    " OR EXISTS (SELECT 1 FROM output_parts p WHERE p.batch_id = b.id))"
)
"""SQL: whether the stages of a batch `b` with the input file `f` are long."""


async def project_of_long(
    session: AsyncSession, batch_id: str, *, long_bytes: int, long_rows: int
) -> str | None:
    """The project of a batch whose stages are long; none of other batches.

    One whose files are written in part already is long whatever its input was.
    """
    found: str | None = await session.scalar(
        text(
            f"""
            SELECT b.project_id FROM batches b JOIN files f ON f.id = b.input_file_id
            WHERE b.id = :id
              AND {LONG}
            """
        ),
        {"id": batch_id, "long_bytes": long_bytes, "long_rows": long_rows},
    )
    return found


async def try_take(session: AsyncSession, project_id: str, *, idle_limit_s: float) -> bool:
    """Take the project's lock on long stages for this transaction; false where another has it.

    The server ends the transaction if it is idle for `idle_limit_s`, so that a stopped process
    cannot hold it for ever.
    """
    await session.execute(
        text("SELECT set_config('idle_in_transaction_session_timeout', :limit, true)"),
        {"limit": str(int(idle_limit_s * 1000))},
    )
    return bool(
        await session.scalar(
            text("SELECT pg_try_advisory_xact_lock(hashtextextended(:id, 30))"),
            {"id": project_id},
        )
    )
