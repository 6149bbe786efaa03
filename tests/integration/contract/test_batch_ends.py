"""Section 8: reading, listing and cancelling batches, and what never changes."""

from __future__ import annotations

import openai
import pytest

from tests.integration.contract.conftest import CHAT, Live, error_of, line


@pytest.mark.contract("B-12")
def test_b_28_one_file_for_several_batches(live: Live) -> None:
    with live.client() as client:
        first = client.batches.retrieve(live.create_batch([line("a")]))
        second = client.batches.create(
            input_file_id=first.input_file_id, endpoint=CHAT, completion_window="24h"
        )
        for batch in (first, second):
            assert batch.model is None
            live.process(batch.id)
            done = client.batches.retrieve(batch.id)
            assert (done.status, done.model) == ("completed", live.gateway.model)


@pytest.mark.contract("R-05", "T-18")
def test_r_02_what_is_over_never_changes(live: Live) -> None:
    batch_id = live.create_batch([line("a")])
    live.process(batch_id)
    with live.http() as http:
        before = http.get(f"/v1/batches/{batch_id}").json()
        assert before["status"] == "completed"
        error_of(http.post(f"/v1/batches/{batch_id}/cancel"), 409)
        live.process(batch_id)
        assert http.get(f"/v1/batches/{batch_id}").json() == before


@pytest.mark.contract("R-19", "R-12")
def test_r_17_cancelling_answers_at_once_and_twice(live: Live) -> None:
    batch_id = live.create_batch([line("a"), line("b")])
    live.validate(batch_id)
    with live.client() as client:
        batch = client.batches.cancel(batch_id)
        assert batch.status == "cancelling"
        assert isinstance(batch.cancelling_at, int)
        assert client.batches.cancel(batch_id) == batch
        live.process(batch_id)
        ended = client.batches.retrieve(batch_id)
        assert ended.status == "cancelled"
        assert isinstance(ended.cancelled_at, int)
        assert ended.request_counts is not None
        assert ended.request_counts.failed == 2
        assert ended.error_file_id is not None
        assert client.files.content(ended.error_file_id).text.count("batch_cancelled") == 2


def test_r_20_what_is_over_cannot_be_cancelled(live: Live) -> None:
    batch_id = live.create_batch([line("a")])
    live.process(batch_id)
    with live.client() as client, pytest.raises(openai.ConflictError) as refused:
        client.batches.cancel(batch_id)
    assert "Cannot cancel a batch with status 'completed'." in refused.value.message
    assert (refused.value.type, refused.value.param) == ("invalid_request_error", None)
    assert refused.value.response.headers["x-should-retry"] == "false"


@pytest.mark.contract("R-29")
def test_r_25_bad_reads(live: Live) -> None:
    with live.http() as http:
        error_of(http.get("/v1/batches/batch_unknown"), 404)
        for limit in ("0", "101", "x"):
            error = error_of(http.get(f"/v1/batches?limit={limit}"), 400)
            assert error["param"] == "limit"
        body = http.get("/v1/batches?limit=100").json()
    assert set(body) == {"object", "data", "first_id", "last_id", "has_more"}


def test_f_27_the_input_of_a_live_batch_stays(live: Live) -> None:
    with live.http() as http:
        batch = http.get(f"/v1/batches/{live.create_batch([line('a')])}").json()
        refused = http.delete(f"/v1/files/{batch['input_file_id']}")
    assert error_of(refused, 409)["code"] == "file_in_use"


def test_z_12_errors_hold_no_prompt_and_no_key(live: Live) -> None:
    for more in ({"temperature": 9}, {"n": 0}, {"tools": "SECRETWORD"}, {"seed": "SECRETWORD"}):
        reply = live.ask("SECRETWORD", **more)
        assert reply.status_code == 400
        assert "SECRETWORD" not in reply.text
    reply = live.ask("SECRETWORD fake:status=500")
    assert "SECRETWORD" not in reply.text
    assert live.gateway.key not in reply.text
