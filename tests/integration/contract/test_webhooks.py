"""Section 9: webhooks as the official SDK manages and verifies them."""

from __future__ import annotations

import time

import openai
import pytest

from tests.fixtures.receiver import Received, Receiver
from tests.fixtures.webhook_clients import client, new_endpoint, receiver
from tests.fixtures.webhooks import deliver_now
from tests.integration.contract.conftest import Live, error_of, line

__all__ = ["client", "receiver"]

KEYS = {
    "id",
    "object",
    "created_at",
    "updated_at",
    "event_types",
    "name",
    "url",
    "signing_secret_hint",
    "coserve",
}


SDK_TOLERANCE_S = 300
"""How far a timestamp may be from the clock of the one who verifies."""

SINCE_SENT_AT_MOST_S = 60


def _delivered(live: Live, receiver: Receiver) -> Received:
    live.run(deliver_now(live.database))
    (received,) = receiver.received
    return received


@pytest.mark.contract("W-02", "W-05")
def test_w_01_each_end_of_a_batch_is_an_event(
    live: Live, client: openai.OpenAI, receiver: Receiver
) -> None:
    endpoint = new_endpoint(client, receiver.url)
    ids: dict[str, str] = {}
    for event_type in ("completed", "failed", "cancelled", "expired"):
        lines = [b"no json"] if event_type == "failed" else [line("a")]
        batch_id = ids[f"batch.{event_type}"] = live.create_batch(lines)
        if event_type != "failed":
            live.validate(batch_id)
        if event_type == "cancelled":
            client.batches.cancel(batch_id)
        if event_type == "expired":
            live.run(_end_window(live, batch_id))
        live.process(batch_id)
        assert client.batches.retrieve(batch_id).status == event_type
    live.run(deliver_now(live.database))
    events = [one.unwrap(endpoint.signing_secret) for one in receiver.received]
    assert {event.type: event.data.id for event in events} == ids
    assert len({event.id for event in events}) == 4
    for event in events:
        assert event.object == "event"
        assert event.id.startswith("evt_")


async def _end_window(live: Live, batch_id: str) -> None:
    from tests.fixtures.batches import end_window

    await end_window(live.database, batch_id)


@pytest.mark.contract("W-03", "W-04")
def test_w_05_the_sdk_accepts_it_and_nothing_else(
    live: Live, client: openai.OpenAI, receiver: Receiver
) -> None:
    endpoint = new_endpoint(client, receiver.url)
    live.process(live.create_batch([line("a")]))
    received = _delivered(live, receiver)
    secret = endpoint.signing_secret
    assert client.webhooks.unwrap(received.body, received.headers, secret=secret)
    assert received.headers["webhook-signature"].startswith("v1,")

    other = client.webhooks.rotate_secret(endpoint.id).signing_secret
    for body, headers, with_secret in (
        (received.body.replace(b"completed", b"cancelled"), received.headers, secret),
        (received.body + b" ", received.headers, secret),
        (received.body, {**received.headers, "webhook-id": "wh_other"}, secret),
        (received.body, received.headers, other),
    ):
        with pytest.raises(openai.InvalidWebhookSignatureError):
            client.webhooks.unwrap(body, headers, secret=with_secret)
    for shift_s in (-SDK_TOLERANCE_S - 1, SDK_TOLERANCE_S + SINCE_SENT_AT_MOST_S):
        moved = str(int(received.headers["webhook-timestamp"]) + shift_s)
        headers = {**received.headers, "webhook-timestamp": moved}
        with pytest.raises(openai.InvalidWebhookSignatureError, match="too"):
            client.webhooks.unwrap(received.body, headers, secret=secret)


@pytest.mark.contract("W-07")
def test_w_06_endpoints_are_managed_by_the_sdk(
    live: Live, client: openai.OpenAI, receiver: Receiver
) -> None:
    made = new_endpoint(client, receiver.url, "batch.failed", "batch.completed")
    assert made.signing_secret.startswith("whsec_")
    assert made.event_types == ["batch.completed", "batch.failed"]
    with live.http() as http:
        shape = http.get(f"/webhook_endpoints/{made.id}").json()
        assert set(shape) == KEYS, "no secret after the creation"
        assert shape["updated_at"] == shape["created_at"]
        assert shape["coserve"] == {"status": "ok", "failing_since": None, "disabled_at": None}
        assert shape == http.get(f"/v1/webhook_endpoints/{made.id}/").json()
    found = client.webhooks.retrieve(made.id)
    assert (found.name, found.url, found.object) == ("nightly", receiver.url, "webhook_endpoint")
    assert found.signing_secret_hint == f"whsec_…{made.signing_secret.rstrip('=')[-4:]}"

    time.sleep(1.1)
    assert client.webhooks.update(made.id, name="nightly").updated_at == found.updated_at
    changed = client.webhooks.update(made.id, name="weekly", event_types=["batch.expired"])
    assert (changed.name, changed.event_types, changed.url) == (
        "weekly",
        ["batch.expired"],
        receiver.url,
    )
    assert changed.updated_at is not None
    assert found.updated_at is not None
    assert changed.updated_at > found.updated_at

    rotated = client.webhooks.rotate_secret(made.id)
    assert rotated.signing_secret != made.signing_secret
    deleted = client.webhooks.delete(made.id)
    assert (deleted.id, deleted.deleted, deleted.object) == (
        made.id,
        True,
        "webhook_endpoint.deleted",
    )
    with pytest.raises(openai.NotFoundError):
        client.webhooks.retrieve(made.id)
    types = client.webhooks.event_types.list()
    ends = ("cancelled", "completed", "failed", "incomplete")
    assert types.data[:4] == ["batch.cancelled", "batch.completed", "batch.expired", "batch.failed"]
    assert types.data[4:] == [f"response.{end}" for end in ends]


@pytest.mark.contract("W-06")
def test_pages_of_endpoints(live: Live, client: openai.OpenAI, receiver: Receiver) -> None:
    made = [new_endpoint(client, f"{receiver.url}/{number}").id for number in range(5)]
    assert [one.id for one in client.webhooks.list(limit=2)] == made[::-1]
    page = client.webhooks.list(limit=2, after=made[3])
    assert [one.id for one in page.data] == [made[2], made[1]]
    assert page.has_more
    with live.http() as http:
        body = http.get("/v1/webhook_endpoints?limit=1").json()
        assert set(body) == {"object", "data", "first_id", "last_id", "has_more"}
        assert (body["object"], body["first_id"]) == ("list", made[4])
        for limit in ("0", "101", "x"):
            assert error_of(http.get(f"/webhook_endpoints?limit={limit}"), 400)["param"] == "limit"
        error_of(http.get("/webhook_endpoints?after=we_unknown"), 404)


@pytest.mark.contract("W-06")
def test_a_secret_can_be_kept_for_a_day(
    live: Live, client: openai.OpenAI, receiver: Receiver
) -> None:
    old = new_endpoint(client, receiver.url)
    new = client.webhooks.rotate_secret(old.id, keep_old_secret_active_for_24_hours=True)
    live.process(live.create_batch([line("a")]))
    received = _delivered(live, receiver)
    for secret in (old.signing_secret, new.signing_secret):
        assert received.unwrap(secret).type == "batch.completed"
    receiver.received.clear()
    client.webhooks.rotate_secret(old.id)
    live.process(live.create_batch([line("a")]))
    received = _delivered(live, receiver)
    for secret in (old.signing_secret, new.signing_secret):
        with pytest.raises(openai.InvalidWebhookSignatureError):
            received.unwrap(secret)


@pytest.mark.contract("W-06")
def test_a_sample_can_be_sent(live: Live, client: openai.OpenAI, receiver: Receiver) -> None:
    endpoint = new_endpoint(client, receiver.url, "batch.completed")
    for status in (200, 302, 500):
        receiver.status = status
        result = client.webhooks.test(endpoint.id, event_type="batch.expired")
        assert (result.status_code, result.success) == (status, True)
        assert (result.object, result.event_type) == ("webhook_endpoint.test", "batch.expired")
        assert result.webhook_endpoint_id == endpoint.id
    assert receiver.received[0].unwrap(endpoint.signing_secret).type == "batch.expired"
    assert len({one.webhook_id for one in receiver.received}) == 3
    client.webhooks.update(endpoint.id, url="http://127.0.0.1:1/")
    with pytest.raises(openai.BadRequestError) as refused:
        client.webhooks.test(endpoint.id, event_type="batch.expired")
    assert refused.value.code == "webhook_endpoint_unreachable"
    with pytest.raises(openai.BadRequestError) as refused:
        client.webhooks.test(endpoint.id, event_type="video.completed")
    assert refused.value.param == "event_type"


def test_w_07_shapes_are_the_sdks(client: openai.OpenAI) -> None:
    made = new_endpoint(client, "https://1.1.1.1/")
    again = client.webhooks.retrieve(made.id)
    for shape in (made, again):
        extra = set(shape.model_dump()) - set(type(shape).model_fields)
        assert extra == {"coserve"}, "ours, and nothing else beside the official keys"
        assert set(type(shape).model_fields) <= set(shape.model_dump())


def test_w_08_a_failing_receiver_leaves_the_batch_alone(
    live: Live, client: openai.OpenAI, receiver: Receiver
) -> None:
    receiver.status = 500
    endpoint = new_endpoint(client, receiver.url)
    batch_id = live.create_batch([line("a")])
    live.process(batch_id)
    live.run(deliver_now(live.database))
    assert len(receiver.received) == 1
    batch = client.batches.retrieve(batch_id)
    assert batch.status == "completed"
    assert batch.output_file_id is not None
    with live.http() as http:
        shape = http.get(f"/v1/webhook_endpoints/{endpoint.id}").json()
    assert shape["coserve"]["status"] == "failing"
