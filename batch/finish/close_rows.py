"""Closing rows that will never run: those still pending when a batch is cancelled or expires."""

from __future__ import annotations

from batch.finish.output import cancelled_line, expired_line
from batch.states import RowStatus
from store.repositories import result as results
from store.repositories.result import NewResult
from store.session import Database

CLOSE_ROWS = 1000


async def close_pending(database: Database, batch_id: str, status: RowStatus) -> int:
    """Give every pending row of the batch its error line; how many there were.

    One short transaction per `CLOSE_ROWS` rows, so that results of rows in flight are not kept
    waiting. The batch must be in a state in which no row of it is claimed any more.
    """
    line_of = cancelled_line if status is RowStatus.CANCELLED else expired_line
    num_closed = 0
    while True:
        async with database.unit_of_work() as session:
            taken = await results.take_pending(session, batch_id, limit=CLOSE_ROWS)
            if not taken:
                return num_closed
            lines = [
                NewResult(row_id, batch_id, status, line_of(row_id, custom_id))
                for row_id, custom_id in taken
            ]
            written = await results.write(session, lines, dispatcher_id=None)
        num_closed += written.num_written
