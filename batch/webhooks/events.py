"""The events a project can hear of, and their bodies (rows W-01, W-02)."""

from __future__ import annotations

from datetime import datetime
from typing import Final

from api.json_output import dump
from batch.states import TERMINAL_BATCH, BatchStatus
from store.types import new_id

EVENT_PREFIX: Final = "evt_"
WEBHOOK_PREFIX: Final = "wh_"


def type_of(status: BatchStatus) -> str:
    """The type of the event that a batch entered a terminal status."""
    return f"batch.{status}"


EVENT_TYPES: Final = tuple(sorted(type_of(status) for status in TERMINAL_BATCH))


def new_event_id() -> str:
    """The id of one event, the same for all who hear of it."""
    return new_id(EVENT_PREFIX)


def body_of(event_id: str, event_type: str, batch_id: str, event_at: datetime) -> bytes:
    """What is sent: thin, as the API's own; the receiver fetches the batch if it wants more."""
    return dump(
        {
            "id": event_id,
            "object": "event",
            "created_at": int(event_at.timestamp()),
            "type": event_type,
            "data": {"id": batch_id},
        }
    )
