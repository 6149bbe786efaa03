"""Section 9: whose endpoints they are, and what is refused."""

from __future__ import annotations

import openai
import pytest

from batch.webhooks.endpoints import MAX_ENDPOINTS
from tests.fixtures.receiver import Receiver
from tests.fixtures.webhook_clients import client, new_endpoint, receiver
from tests.integration.contract.conftest import Live, error_of

__all__ = ["client", "receiver"]


@pytest.mark.contract("T-29", "W-06")
def test_endpoints_of_others_look_like_none(
    live: Live, client: openai.OpenAI, receiver: Receiver
) -> None:
    endpoint = new_endpoint(client, receiver.url)
    with live.http(live.other_key) as http:

        def everything(endpoint_id: str) -> list[tuple[int, str]]:
            path = f"/v1/webhook_endpoints/{endpoint_id}"
            replies = (
                http.get(path),
                http.post(path, json={"name": "mine now"}),
                http.post(path, json={"url": "https://10.0.0.1/"}),
                http.delete(path),
                http.post(f"{path}/rotate_secret", json={}),
                http.post(f"{path}/test", json={"event_type": "batch.failed"}),
                http.post(f"{path}/test", json={"event_type": "nonsense"}),
                http.get(f"/v1/webhook_endpoints?after={endpoint_id}"),
            )
            return [(one.status_code, one.text.replace(endpoint_id, "ID")) for one in replies]

        theirs = everything(endpoint.id)
        assert theirs == everything("we_0123456789abcdef01234567")
        assert {status for status, _ in theirs} == {404}
        assert http.get("/v1/webhook_endpoints").json()["data"] == []
    assert client.webhooks.retrieve(endpoint.id).name == "nightly"
    assert receiver.received == []


@pytest.mark.contract("W-06", "W-08")
@pytest.mark.parametrize(
    ("change", "param"),
    [
        ({"url": "https://10.0.0.1/hook"}, "url"),
        ({"url": "https://169.254.169.254/latest/meta-data"}, "url"),
        ({"url": "https://[::ffff:10.0.0.1]/"}, "url"),
        ({"url": "http://1.1.1.1/hook"}, "url"),
        ({"url": "ftp://1.1.1.1/hook"}, "url"),
        ({"url": "https://user:pw@1.1.1.1/"}, "url"),
        ({"url": 3}, "url"),
        ({"event_types": []}, "event_types"),
        ({"event_types": ["batch.done"]}, "event_types"),
        ({"event_types": ["batch.failed", "video.completed"]}, "event_types"),
        ({"event_types": "batch.failed"}, "event_types"),
        ({"name": ""}, "name"),
        ({"name": "x" * 257}, "name"),
        ({"name": "a\0b"}, "name"),
    ],
)
def test_what_is_not_served_is_refused_by_name(
    live: Live, client: openai.OpenAI, change: dict[str, object], param: str
) -> None:
    good = {"name": "n", "url": "https://1.1.1.1/", "event_types": ["batch.failed"]}
    with live.http() as http:
        error = error_of(http.post("/v1/webhook_endpoints", json={**good, **change}), 400)
        assert error["param"] == param
        made = http.post("/v1/webhook_endpoints", json=good).json()
        error = error_of(http.post(f"/v1/webhook_endpoints/{made['id']}", json=change), 400)
        assert error["param"] == param
        assert http.get(f"/v1/webhook_endpoints/{made['id']}").json()["name"] == "n"


@pytest.mark.contract("W-06")
def test_a_project_has_so_many_endpoints(live: Live, client: openai.OpenAI) -> None:
    for _ in range(MAX_ENDPOINTS):
        new_endpoint(client, "https://1.1.1.1/")
    with pytest.raises(openai.BadRequestError, match=f"at most {MAX_ENDPOINTS}"):
        new_endpoint(client, "https://1.1.1.1/")


@pytest.mark.contract("W-06")
def test_no_key_no_endpoints(live: Live) -> None:
    with live.http("sk-coserve-wrong") as http:
        error_of(http.get("/v1/webhook_endpoints"), 401)
        error_of(http.get("/v1/webhook_event_types"), 401)
        error_of(http.post("/v1/webhook_endpoints", json={}), 401)
