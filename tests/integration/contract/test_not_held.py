"""What an engine could not follow is told wherever a result can carry it."""

from __future__ import annotations

from typing import Any

import pytest

from tests.fixtures.response_events import read_stream
from tests.integration.contract import test_background_responses as background
from tests.integration.contract import test_response_batches as response_batches
from tests.integration.contract.conftest import MODEL, Live, line

SCHEMA = {"type": "object", "properties": {"a": {"type": "integer", "multipleOf": 5}}}
NAMED = {"name": "n", "schema": SCHEMA}
FORMAT: Any = {"type": "json_schema", "json_schema": NAMED}
TEXT = {"format": {"type": "json_schema", **NAMED}}
TOOL = {"name": "f", "parameters": SCHEMA}
FORCED: dict[str, Any] = {"tools": [{"type": "function", **TOOL}], "tool_choice": "required"}


def params(response: dict[str, Any]) -> list[str]:
    warnings = response.get("warnings", [])
    assert all({*one} == {"code", "param", "message"} for one in warnings)
    return [one["param"] for one in warnings if one["code"] == "not_held"]


def test_rows_of_chats(live: Live) -> None:
    tools = [{"type": "function", "function": TOOL}]
    batch_id = live.create_batch(
        [
            line("form", response_format=FORMAT),
            line("choices", response_format=FORMAT, n=2),
            line("call", tools=tools, tool_choice="required"),
            line("plain"),
        ]
    )
    live.process(batch_id)
    with live.client() as client:
        batch = client.batches.retrieve(batch_id)
    found = response_batches.rows(live, batch.output_file_id)
    told = {name: row["response"].get("not_held") for name, row in found.items()}
    assert told == {
        "form": ["schema.properties.a.multipleOf"],
        "choices": ["schema.properties.a.multipleOf"],
        "call": ["tools.f.properties.a.multipleOf"],
        "plain": None,
    }


def test_rows_of_responses(live: Live) -> None:
    made = [response_batches.line("form", text=TEXT), response_batches.line("call", **FORCED)]
    batch_id = response_batches.create(live, made)
    live.process(batch_id)
    with live.client() as client:
        batch = client.batches.retrieve(batch_id)
    found = response_batches.rows(live, batch.output_file_id)
    told = {name: params(row["response"]["body"]) for name, row in found.items()}
    assert told == {
        "form": ["text.format.schema.properties.a.multipleOf"],
        "call": ["tools.f.properties.a.multipleOf"],
    }


@pytest.mark.parametrize("stream", [False, True])
def test_responses_and_what_is_stored_of_them(live: Live, *, stream: bool) -> None:
    body = {"model": MODEL, "input": "hi", "text": TEXT, "stream": stream}
    with live.http() as http:
        reply = http.post("/v1/responses", json=body)
        made = read_stream(reply.content).response if stream else reply.json()
        assert made is not None
        wanted = ["text.format.schema.properties.a.multipleOf"]
        assert params(made) == wanted
        assert params(http.get(f"/v1/responses/{made['id']}").json()) == wanted


def test_responses_made_in_the_background(live: Live) -> None:
    skipped = {"tools": [*FORCED["tools"], {"type": "web_search"}]}
    made = background.begin(live, "hi", tool_choice="required", **skipped)
    assert [one["code"] for one in made["warnings"]] == ["skipped"]
    done = background.process(live, made)
    assert [one["code"] for one in done["warnings"]] == ["skipped", "not_held"]
    assert params(done) == ["tools.f.properties.a.multipleOf"]
