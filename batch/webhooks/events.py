"""The events a project can hear of, and their bodies (rows W-01, W-02)."""

from __future__ import annotations

from datetime import datetime
from typing import Final

from api.json_output import dump
from api.responses.resource import RESPONSE_PREFIX
from batch.states import TERMINAL_BATCH, BatchStatus
from store.repositories.batch import ID_PREFIX
from store.types import new_id

EVENT_PREFIX: Final = "evt_"
WEBHOOK_PREFIX: Final = "wh_"


def type_of(status: BatchStatus) -> str:
    """The type of the event that a batch entered a terminal status."""
    return f"batch.{status}"


RESPONSE_EVENT_TYPES: Final = (
    "response.cancelled",
    "response.completed",
    "response.failed",
    "response.incomplete",
)
EVENT_TYPES: Final = (
    *sorted(type_of(status) for status in TERMINAL_BATCH),
    *RESPONSE_EVENT_TYPES,
)


def new_event_id() -> str:
    """The id of one event, the same for all who hear of it."""
    return new_id(EVENT_PREFIX)


def sample_id(event_type: str) -> str:
    """An id of what an event of this type is about, of nothing that there is."""
    return new_id(RESPONSE_PREFIX if event_type in RESPONSE_EVENT_TYPES else ID_PREFIX)


def body_of(event_id: str, event_type: str, subject_id: str, event_at: datetime) -> bytes:
    """What is sent: thin, as the API's own; the receiver fetches its subject if it wants more."""
    return dump(
        {
            "id": event_id,
            "object": "event",
            "created_at": int(event_at.timestamp()),
            "type": event_type,
            "data": {"id": subject_id},
        }
    )
