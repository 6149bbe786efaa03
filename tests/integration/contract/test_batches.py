"""Sections 6 to 8: files and the whole life of a batch, seen from the outside."""

from __future__ import annotations

import time
from typing import Any

import orjson
import pytest

from tests.integration.contract.conftest import CHAT, MODEL, Live, error_of, line

STATUSES = {
    "validating", "failed", "in_progress", "finalizing", "completed", "expired", "cancelling",
    "cancelled",
}  # fmt: skip


def read(live: Live, batch_id: str) -> dict[str, Any]:
    with live.http() as http:
        body: dict[str, Any] = http.get(f"/v1/batches/{batch_id}").json()
    assert body["status"] in STATUSES
    return body


def lines_of(live: Live, file_id: str) -> list[dict[str, Any]]:
    with live.http() as http:
        data = http.get(f"/v1/files/{file_id}/content").content
    assert data.endswith(b"\n")
    return [orjson.loads(one) for one in data.splitlines()]


@pytest.mark.contract("F-01", "F-03", "F-07")
def test_f_02_an_upload_is_200(live: Live) -> None:
    with live.http() as http:
        for purpose in ("assistants", "batch", "fine-tune", "vision", "user_data", "evals"):
            form = {
                "purpose": purpose,
                "expires_after[anchor]": "created_at",
                "expires_after[seconds]": "3600",
            }
            reply = http.post("/v1/files", files={"file": ("a", b"data")}, data=form)
            assert reply.status_code == 200
            file = reply.json()
            assert {
                "id", "object", "bytes", "created_at", "filename", "purpose", "status",
            } <= set(file)  # fmt: skip
            assert file["expires_at"] == file["created_at"] + 3600
            assert http.get(f"/v1/files/{file['id']}/content").content == b"data"


@pytest.fixture(scope="module")
def mixed(live: Live) -> str:
    """A batch that ran: two good lines, one that the engine refuses."""
    batch_id = live.create_batch(
        [
            line("a", "fake:text=one"),
            line("é😀", "b c fake:text=é_two"),
            line("bad", "fake:status=400"),
        ]
    )
    live.process(batch_id)
    return batch_id


@pytest.mark.contract("R-03", "R-05")
def test_r_04_failed_lines_do_not_fail_the_batch(live: Live, mixed: str) -> None:
    body = read(live, mixed)
    assert body["status"] == "completed"
    assert body["request_counts"] == {"total": 3, "completed": 2, "failed": 1}
    for name in ("failed_at", "expired_at", "cancelling_at", "cancelled_at", "errors"):
        assert body[name] is None


def test_b_10_times_are_in_order(live: Live, mixed: str) -> None:
    body = read(live, mixed)
    times = [body[f"{one}_at"] for one in ("created", "in_progress", "finalizing", "completed")]
    assert all(type(one) is int for one in times)
    assert times == sorted(times)


@pytest.mark.contract("R-08", "R-10", "R-13", "R-14", "R-15", "R-32")
def test_r_06_each_line_is_in_one_file(live: Live, mixed: str) -> None:
    body = read(live, mixed)
    good, bad = lines_of(live, body["output_file_id"]), lines_of(live, body["error_file_id"])
    assert sorted(one["custom_id"] for one in good) == ["a", "é😀"]
    assert [one["custom_id"] for one in bad] == ["bad"]
    for one in good + bad:
        assert list(one) == ["id", "custom_id", "response", "error"]
        assert one["id"].startswith("batch_req_")
        assert one["error"] is None
        assert set(one["response"]) == {"status_code", "request_id", "body"}
    assert len({one["id"] for one in good + bad}) == 3
    assert {one["response"]["status_code"] for one in good} == {200}
    assert bad[0]["response"]["status_code"] == 400
    assert list(bad[0]["response"]["body"]["error"]) == ["message", "type", "param", "code"]


def test_r_09_a_lines_body_is_the_online_reply(live: Live, mixed: str) -> None:
    online = live.ask("fake:text=one").json()
    good = lines_of(live, read(live, mixed)["output_file_id"])
    (one,) = [one for one in good if one["custom_id"] == "a"]
    batch = one["response"]["body"]
    for body in (online, batch):
        assert body.pop("id").startswith("chatcmpl-")
        assert type(body.pop("created")) is int
    assert batch == online


def test_r_16_usage_is_the_sum(live: Live, mixed: str) -> None:
    body = read(live, mixed)
    used = [one["response"]["body"]["usage"] for one in lines_of(live, body["output_file_id"])]
    usage = body["usage"]
    assert usage["input_tokens"] == sum(one["prompt_tokens"] for one in used)
    assert usage["output_tokens"] == sum(one["completion_tokens"] for one in used)
    assert usage["total_tokens"] == usage["input_tokens"] + usage["output_tokens"]
    assert usage["input_tokens_details"] == {"cached_tokens": 0}
    assert usage["output_tokens_details"] == {"reasoning_tokens": 0}


@pytest.mark.contract("F-08")
def test_r_07_no_file_where_it_would_be_empty(live: Live) -> None:
    for prompt, full, none in (
        ("fake:text=x", "output_file_id", "error_file_id"),
        ("fake:status=400", "error_file_id", "output_file_id"),
    ):
        batch_id = live.create_batch([line("a", prompt)])
        live.process(batch_id)
        body = read(live, batch_id)
        assert (body["status"], body[none]) == ("completed", None)
        with live.http() as http:
            assert http.get(f"/v1/files/{body[full]}").json()["purpose"] == "batch_output"


@pytest.mark.contract("R-07", "F-25")
def test_r_01_before_it_ends_there_are_no_files(live: Live) -> None:
    batch_id = live.create_batch([line("a")])
    for status in ("validating", "in_progress"):
        body = read(live, batch_id)
        assert body["status"] == status
        assert (body["output_file_id"], body["error_file_id"]) == (None, None)
        live.validate(batch_id)


def test_m_04_what_is_listed_is_what_batches_accept(live: Live) -> None:
    with live.http() as http:
        (listed,) = [one["id"] for one in http.get("/v1/models").json()["data"]]
    assert live.ask("hi", model=listed).status_code == 200
    for model, status in ((listed, "in_progress"), ("gpt-9", "failed")):
        batch_id = live.create_batch([line("a", model=model)])
        live.validate(batch_id)
        body = read(live, batch_id)
        assert body["status"] == status, body["errors"]
    assert [one["code"] for one in body["errors"]["data"]] == ["model_not_found"]


@pytest.mark.parametrize(
    ("data", "num_lines"),
    [
        (line("a") + b"\n", 1),
        (line("a") + b"\r\n" + line("b") + b"\r\n", 2),
        (b"\xef\xbb\xbf" + line("a"), 1),
        (line("a") + b"\n\n" + line("b"), 2),
    ],
)
def test_b_23_line_ends(live: Live, data: bytes, num_lines: int) -> None:
    batch_id = live.create_batch([data])
    live.validate(batch_id)
    body = read(live, batch_id)
    assert (body["status"], body["request_counts"]["total"]) == ("in_progress", num_lines)


def test_b_29_creation_does_not_read_the_file(live: Live) -> None:
    filler = "x" * 1_000_000
    with live.client() as client:
        data = b"\n".join(line(str(number), filler) for number in range(20))
        file = client.files.create(file=("big.jsonl", data), purpose="batch")
        began_s = time.monotonic()
        batch = client.batches.create(input_file_id=file.id, endpoint=CHAT, completion_window="24h")
        assert time.monotonic() - began_s < 1.0
    assert batch.status == "validating"


def test_z_01_head_and_options(live: Live) -> None:
    with live.http() as http:
        for path in ("/v1/models", "/v1/files", "/v1/batches", CHAT):
            for method in ("HEAD", "OPTIONS"):
                assert http.request(method, path).status_code < 500


def test_z_04_ids_are_opaque(live: Live) -> None:
    with live.http() as http:
        for name in ("batch_x", "x", "0", "a" * 300, "%F0%9F%98%80", "..%2F..", "a%00b"):
            for noun in ("files", "batches"):
                assert http.get(f"/v1/{noun}/{name}").status_code == 404, name


def test_z_05_big_numbers(live: Live) -> None:
    assert live.ask("hi", seed=-(2**63)).status_code == 200
    assert error_of(live.ask("hi", temperature=1e308), 400)["param"] == "temperature"


@pytest.mark.parametrize("text", ["é😀\u200d", "a\x00b", "\u2028", "中文 العربية"])
def test_z_06_odd_text_is_kept_or_refused(live: Live, text: str) -> None:
    assert live.ask(text).status_code == 200
    assert live.engine.received[-1]["messages"][0]["content"] == text
    batch_id = live.create_batch([line(f"id {text}")])
    live.validate(batch_id)
    body = read(live, batch_id)
    storable = "\0" not in text
    assert body["status"] == ("in_progress" if storable else "failed")


def test_z_08_raw_and_streaming_helpers(live: Live) -> None:
    with live.client() as client:
        raw = client.chat.completions.with_raw_response.create(**live.chat("hi"))
        assert raw.parse().model == MODEL
        with client.chat.completions.with_streaming_response.create(**live.chat("hi")) as reply:
            assert reply.headers["x-request-id"].startswith("req_")
            assert reply.parse().model == MODEL
        assert client.models.with_raw_response.list().parse().data
        file = client.files.with_raw_response.create(file=b"x", purpose="evals").parse()
        with client.files.with_streaming_response.content(file.id) as content:
            assert content.read() == b"x"
        batch_id = live.create_batch([line("raw")])
        assert client.batches.with_raw_response.list(limit=1).parse().data[0].id == batch_id


def test_z_03_many_calls_on_one_connection(live: Live) -> None:
    with live.http() as http:
        http.get("/v1/models")
        before = set(live.gateway.server.server_state.connections)
        for _ in range(1000):
            assert http.get("/v1/models/org/none").status_code == 404
        # Those of earlier tests may have closed meanwhile; none was opened.
        assert set(live.gateway.server.server_state.connections) <= before
