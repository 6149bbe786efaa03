"""Lines of output and error files (rows R-08 to R-15)."""

from __future__ import annotations

import orjson
import pytest

from batch.finish import output


@pytest.mark.contract("R-08")
def test_a_success() -> None:
    body = {"object": "chat.completion", "choices": [{"message": {"content": "Größe 名 🙂"}}]}
    line = output.http_line(17, "a", status_code=200, request_id="req_1", body=body)
    assert orjson.loads(line) == {
        "id": "batch_req_0000000000000011",
        "custom_id": "a",
        "response": {"status_code": 200, "request_id": "req_1", "body": body},
        "error": None,
    }
    assert b"\n" not in line
    assert "Größe 名 🙂".encode() in line


@pytest.mark.contract("R-10")
def test_an_answered_failure_keeps_the_envelope_and_has_no_top_error() -> None:
    body = {"error": {"message": "m", "type": "t", "param": None, "code": None}}
    line = orjson.loads(output.http_line(1, "a", status_code=400, request_id="req_1", body=body))
    assert line["response"]["status_code"] == 400
    assert line["response"]["body"] == body
    assert line["error"] is None


@pytest.mark.parametrize("status_code", [0, 100, 199, 600])
@pytest.mark.contract("R-32")
def test_no_line_claims_a_status_that_no_answer_has(status_code: int) -> None:
    with pytest.raises(ValueError, match="not the status"):
        output.http_line(1, "a", status_code=status_code, request_id="r", body={})


@pytest.mark.contract("R-11", "R-12")
def test_lines_that_never_ran() -> None:
    assert orjson.loads(output.expired_line(1, "a")) == {
        "id": "batch_req_0000000000000001",
        "custom_id": "a",
        "response": None,
        "error": {
            "code": "batch_expired",
            "message": "This request could not be executed before the completion window expired.",
        },
    }
    cancelled = orjson.loads(output.cancelled_line(2, "b"))
    assert cancelled["response"] is None
    assert cancelled["error"]["code"] == "batch_cancelled"


@pytest.mark.contract("R-14")
def test_ids_differ_and_have_one_width() -> None:
    ids = {output.line_id(row_id) for row_id in (0, 1, 255, 2**63 - 1)}
    assert len(ids) == 4
    assert {len(one) for one in ids} == {26}
