"""Section P: responses in batches, by the rules of chat."""

from __future__ import annotations

import json
from typing import Any

import orjson
import pytest

from engine_adapter.client.base import RESPONSES_PATH
from tests.fixtures.response_events import check_response
from tests.integration.contract.conftest import MODEL, Live

TOOLS: list[Any] = [{"type": "function", "name": "f", "parameters": {"type": "object"}}]
TALK = [
    {"role": "user", "content": "old " * 2500},
    {"role": "assistant", "content": "answer"},
    {"role": "user", "content": "fake:text=new"},
]


def line(custom_id: str, given: Any = "fake:text=four", **more: Any) -> bytes:
    body = {"model": MODEL, "input": given, **more}
    return orjson.dumps(
        {"custom_id": custom_id, "method": "POST", "url": RESPONSES_PATH, "body": body}
    )


def create(live: Live, lines: list[bytes]) -> str:
    with live.client() as client:
        file = client.files.create(file=("in.jsonl", b"\n".join(lines)), purpose="batch")
        return client.batches.create(
            input_file_id=file.id, endpoint="/v1/responses", completion_window="24h"
        ).id


def rows(live: Live, file_id: str | None) -> dict[str, Any]:
    assert file_id is not None
    with live.client() as client:
        text = client.files.content(file_id).text
    return {row["custom_id"]: row for row in map(json.loads, text.splitlines())}


def test_p_25_a_batch_of_responses(live: Live) -> None:
    batch_id = create(
        live,
        [
            line("text", instructions="Be brief.", metadata={"a": "b"}),
            line("call", "hi", tools=TOOLS, tool_choice="required"),
            line("cut", "fake:tokens=9", max_output_tokens=3),
            line("long", "x " * 5000),
            line("shortened", TALK, truncation="auto"),
        ],
    )
    live.process(batch_id)
    with live.client() as client:
        batch = client.batches.retrieve(batch_id)
    assert batch.status == "completed"
    made = {name: row["response"]["body"] for name, row in rows(live, batch.output_file_id).items()}
    for body in made.values():
        check_response(body)
    assert made["text"]["output"][0]["content"][0]["text"] == "four"
    assert (made["text"]["metadata"], made["text"]["store"]) == ({"a": "b"}, False)
    assert made["call"]["output"][0]["name"] == "f"
    assert made["shortened"]["output"][0]["content"][0]["text"] == "new"
    assert made["cut"]["incomplete_details"] == {"reason": "max_output_tokens"}
    refused = rows(live, batch.error_file_id)["long"]["response"]
    assert refused["status_code"] == 400
    assert refused["body"]["error"]["param"] == "input"
    with live.http() as http:
        assert http.get(f"/v1/responses/{made['text']['id']}").status_code == 404
    assert batch.usage is not None
    assert batch.usage.output_tokens == sum(one["usage"]["output_tokens"] for one in made.values())


@pytest.mark.parametrize(
    ("more", "param"),
    [
        ({"given": None}, "body.input"),
        ({"stream": True}, "body.stream"),
        ({"previous_response_id": "resp_1"}, "body.previous_response_id"),
        ({"conversation": "conv_1"}, "body.conversation"),
        ({"background": True}, "body.background"),
        ({"tools": [{"type": "unknown_kind"}]}, "body.tools[0].type"),
        ({"given": [{"type": "item_reference", "id": "msg_1"}]}, "body.input[0]"),
        ({"temperature": 3}, "body.temperature"),
        ({"chat_template_kwargs": {"x": True}}, "body.chat_template_kwargs"),
    ],
)
def test_p_25_what_is_wrong_is_named_before_anything_runs(
    live: Live, more: dict[str, Any], param: str
) -> None:
    num_before = len(live.engine.received)
    batch_id = create(live, [line("a", **{"given": "x", **more})])
    live.validate(batch_id)
    with live.client() as client:
        batch = client.batches.retrieve(batch_id)
    assert batch.status == "failed"
    assert batch.errors is not None
    assert [fault.param for fault in batch.errors.data or []] == [param]
    assert len(live.engine.received) == num_before


def test_p_25_errors_of_a_line_speak_of_its_own_fields(live: Live) -> None:
    form = {"format": {"type": "json_object"}}
    batch_id = create(live, [line("a", regex="a", text=form)])
    live.validate(batch_id)
    with live.client() as client:
        batch = client.batches.retrieve(batch_id)
    assert batch.errors is not None
    (fault,) = batch.errors.data or []
    assert fault.message == "Invalid value for 'regex': cannot be combined with 'text.format'."
