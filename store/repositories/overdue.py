"""What should have been collected an hour ago and is still there, by kind; counted up to a limit.

The kinds are those whose end callers are promised; what each duty does: batch/finish/duties.py.
"""

from __future__ import annotations

from typing import Final

from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncSession

GRACE_S: Final = 3600.0
MAX_COUNTED: Final = 10_000

_DUE: Final = {
    "responses": "SELECT 1 FROM responses WHERE expires_at < :due",
    "conversations": "SELECT 1 FROM conversations WHERE expires_at < :due",
    "files": """
        SELECT 1 FROM files f
        WHERE f.collected_at IS NULL AND LEAST(f.deleted_at, f.expires_at) < :due
          AND NOT EXISTS (
            SELECT 1 FROM batches b WHERE b.input_file_id = f.id
              AND b.status IN ('validating', 'in_progress', 'finalizing', 'cancelling'))
    """,
    "parts": """
        SELECT 1 FROM upload_parts p JOIN uploads u ON u.id = p.upload_id
        WHERE u.expires_at < :due - interval '1 hour'
    """,
    "arrivals": "SELECT 1 FROM arrivals WHERE created_at < :due - interval '1 day'",
}
_DUE_AT: Final = f"(statement_timestamp() - make_interval(secs => {GRACE_S}))"
_COUNTS: Final = " UNION ALL ".join(
    f"SELECT '{kind}', (SELECT count(*) FROM ({due.replace(':due', _DUE_AT)}"
    f" LIMIT {MAX_COUNTED}) AS due)"
    for kind, due in _DUE.items()
)


async def by_kind(session: AsyncSession) -> dict[str, int]:
    """How many of each kind, at most `MAX_COUNTED`."""
    found = await session.execute(text(_COUNTS))
    return {row[0]: row[1] for row in found}
