"""What the requests of each batch do in this engine, for those who look at the batch."""

from __future__ import annotations

from collections.abc import Collection, Iterable

from engine_adapter.scheduling.request import RequestRow


def states_by_batch(rows: Iterable[RequestRow], parked: Collection[str]) -> dict[str, list[int]]:
    """Batch id -> how many of its requests decode, are parked, are queued.

    Those whose prompt is being filled count as decoding, those that gave their slot up as queued.

    Args:
        rows: Every live request; those of no batch are left out.
        parked: Ids that the newest step left out, with their KV.
    """
    found: dict[str, list[int]] = {}
    for row in rows:
        if row.batch_id:
            place = 2 if not row.holds_slot else 1 if row.rid in parked else 0
            found.setdefault(row.batch_id, [0, 0, 0])[place] += 1
    return found
