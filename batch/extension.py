"""What a batch says beyond the official fields, under the one key `coserve`. Pure.

A batch with a pace of its own is predicted by it. One without, because it waits or was just
created, is predicted as if everything live ran before it at the speed of the service: of what
runs now, or else of the last finished batches. Nothing measured, nothing said; nor while no
engine serves its model.
"""

from __future__ import annotations

from collections.abc import Collection
from datetime import datetime, timedelta
from typing import Final

from api.batch_shapes import BatchExtension, BatchReceipt, RowsAtEngines, WaitingReason
from batch.states import TERMINAL_BATCH, BatchStatus
from store.models import Batch
from store.repositories.progress import BatchReading, ServiceReading

MIN_PACED_ROWS: Final = 8
"""A pace over fewer results is chance."""

RANGE_MARGIN: Final = 0.1
"""A pace that never varied is believed to this share (shown by `python -m bench.finish_range`)."""

RANGE_DOUBT: Final = 0.3
"""So much wider is a range while everything is open: what is to come was not seen."""

QUIET_S: Final = 30.0
MAX_PREDICTION: Final = timedelta(days=365)


def extend(
    batch: Batch,
    reading: BatchReading | None,
    service: ServiceReading,
    *,
    now: datetime,
    models_up: Collection[str],
) -> BatchExtension:
    """What is known of the batch at `now`.

    Args:
        batch: Any batch.
        reading: How it gets on; none unless it is `in_progress`. Read after the batch, so the
            batch may have come to or gone from there in between: what the batch says counts.
        service: How the service gets on.
        now: The database's clock.
        models_up: Models that an engine answers for.
    """
    rows_per_s = tokens_per_s = None
    if reading is not None and reading.paced_s and reading.num_paced > 0:
        rows_per_s = round(reading.num_paced / reading.paced_s, 3)
        tokens_per_s = round(reading.paced_tokens / reading.paced_s, 1)
    waiting_reason = _waiting_reason(batch, reading, service, now, models_up)
    finish_at = None
    if waiting_reason is not WaitingReason.ENGINE_UNAVAILABLE:
        finish_at = _finish_at(batch, reading, service, rows_per_s, now)
    feasible = None if finish_at is None else finish_at <= batch.expires_at
    return BatchExtension(
        predicted_finish_at=None if finish_at is None else int(finish_at.timestamp()),
        predicted_finish_range=_range(batch, reading, rows_per_s, now) if finish_at else None,
        feasible=feasible,
        warning=_warning(finish_at, batch.expires_at) if feasible is False else None,
        tokens_per_s=tokens_per_s,
        rows_per_s=rows_per_s,
        waiting_reason=waiting_reason,
        paused=batch.paused_at is not None,
        priority=batch.priority,
        retry_of=batch.retry_of,
        webhook_endpoints=batch.webhook_endpoints,
        at_engine=None if reading is None else RowsAtEngines(rows=reading.num_leased),
        receipt=_receipt(batch),
    )


def _receipt(batch: Batch) -> BatchReceipt | None:
    finished_at = batch.completed_at or batch.expired_at or batch.cancelled_at
    if finished_at is None or not batch.num_total:
        return None
    return BatchReceipt(
        rows=batch.num_total,
        distinct_rows=batch.num_total - batch.num_repeats,
        prompt_tokens=batch.prompt_tokens,
        shared_prompt_tokens=batch.cached_tokens,
        answer_tokens=batch.completion_tokens,
        finished_at=int(finished_at.timestamp()),
    )


def _finish_at(
    batch: Batch,
    reading: BatchReading | None,
    service: ServiceReading,
    rows_per_s: float | None,
    now: datetime,
) -> datetime | None:
    if batch.paused_at is not None:
        return None
    if batch.status not in (BatchStatus.VALIDATING, BatchStatus.IN_PROGRESS):
        return None
    if rows_per_s and _has_pace(batch, reading, rows_per_s):
        left_s = (batch.num_total - batch.num_completed - batch.num_failed) / rows_per_s
    else:
        speed = service.live_bytes_per_s or service.past_bytes_per_s
        if not speed:
            return None
        left_s = service.backlog_bytes / speed
    return now + min(timedelta(seconds=left_s), MAX_PREDICTION)


def _has_pace(batch: Batch, reading: BatchReading | None, rows_per_s: float | None) -> bool:
    num_open = batch.num_total - batch.num_completed - batch.num_failed
    if not rows_per_s or reading is None:
        return False
    return reading.num_paced >= min(MIN_PACED_ROWS, num_open)


def _range(
    batch: Batch, reading: BatchReading | None, rows_per_s: float | None, now: datetime
) -> tuple[int, int] | None:
    if reading is None or not rows_per_s or not _has_pace(batch, reading, rows_per_s):
        return None
    num_open = batch.num_total - batch.num_completed - batch.num_failed
    paces = (rows_per_s, *reading.other_paces)
    # What it varied by so far it may vary by again, to either side; while all is open, twice.
    open_share = num_open / max(1, batch.num_total)
    doubt = 1 + RANGE_MARGIN + RANGE_DOUBT * open_share
    varied = (max(paces) / min(paces) * doubt) ** (1 + open_share)
    ends = (
        num_open / max(paces) / varied,
        min(num_open / min(paces) * varied, MAX_PREDICTION / timedelta(seconds=1)),
    )
    earliest, latest = (int((now + timedelta(seconds=left_s)).timestamp()) for left_s in ends)
    return earliest, latest


def _warning(finish_at: datetime | None, expires_at: datetime) -> str | None:
    if finish_at is None:
        return None
    late_h = (finish_at - expires_at).total_seconds() / 3600
    return (
        f"At the present speed this batch would finish {late_h:.1f} hours after its completion "
        "window; the lines left by then expire."
    )


def _waiting_reason(
    batch: Batch,
    reading: BatchReading | None,
    service: ServiceReading,
    now: datetime,
    models_up: Collection[str],
) -> WaitingReason | None:
    if batch.status in TERMINAL_BATCH:
        return None
    if batch.status != BatchStatus.IN_PROGRESS:
        return WaitingReason(batch.status)
    if reading is None:
        return None
    if batch.expires_at <= now:
        return WaitingReason.FINALIZING
    if batch.paused_at is not None and not reading.num_leased:
        return WaitingReason.PAUSED
    if batch.num_completed + batch.num_failed >= batch.num_total:
        return WaitingReason.FINALIZING
    if reading.num_leased:
        since = reading.last_result_at or batch.in_progress_at or now
        quiet = (now - since).total_seconds() > QUIET_S
        return WaitingReason.AT_ENGINE if quiet else None
    if batch.model not in models_up:
        return WaitingReason.ENGINE_UNAVAILABLE
    if not reading.has_ready:
        return WaitingReason.BACKING_OFF
    if service.num_dispatchers == 0:
        return WaitingReason.DISPATCHER_STARTING
    return WaitingReason.QUEUED
