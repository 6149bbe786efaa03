from __future__ import annotations

from datetime import UTC, datetime

import orjson
import pytest
from openai.types.webhooks import UnwrapWebhookEvent
from pydantic import TypeAdapter

from batch.webhooks.events import EVENT_TYPES, body_of, new_event_id


@pytest.mark.contract("W-01")
def test_the_ends_of_a_batch_and_of_a_response_are_the_events() -> None:
    batches = ("batch.cancelled", "batch.completed", "batch.expired", "batch.failed")
    responses = ("cancelled", "completed", "failed", "incomplete")
    assert (*batches, *(f"response.{status}" for status in responses)) == EVENT_TYPES


@pytest.mark.contract("W-02")
@pytest.mark.parametrize("event_type", EVENT_TYPES)
def test_the_sdk_knows_every_event(event_type: str) -> None:
    at = datetime(2026, 1, 2, 3, 4, 5, 600000, tzinfo=UTC)
    body = orjson.loads(body_of(new_event_id(), event_type, "batch_1", at))
    assert set(body) == {"id", "object", "created_at", "type", "data"}
    assert (body["object"], body["data"]) == ("event", {"id": "batch_1"})
    assert body["created_at"] == 1767323045
    event = TypeAdapter(UnwrapWebhookEvent).validate_python(body)
    assert event.type == event_type
