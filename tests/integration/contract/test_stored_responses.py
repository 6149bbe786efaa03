"""Section P: responses that are stored, what goes on from them, and conversations."""

from __future__ import annotations

from typing import Any

import httpx
import openai
import pytest
from sqlalchemy import text

from batch.finish.collect import collect_responses
from tests.fixtures.response_events import check_response, read_stream
from tests.integration.contract.conftest import MODEL, Live, error_of

RESPONSES, CONVERSATIONS = "/v1/responses", "/v1/conversations"
TOOLS: list[Any] = [{"type": "function", "name": "f", "parameters": {"type": "object"}}]


def make(live: Live, given: Any = "fake:text=Paris", **more: Any) -> dict[str, Any]:
    with live.http() as http:
        reply = http.post(RESPONSES, json={"model": MODEL, "input": given, **more})
    assert reply.status_code == 200, reply.text
    body: dict[str, Any] = reply.json()
    return body


def get(live: Live, path: str, key: str | None = None, **params: Any) -> httpx.Response:
    with live.http(key) as http:
        return http.get(path, params=params)


def said(live: Live) -> list[tuple[str, str]]:
    """What the engine got last."""
    messages = live.engine.received[-1]["messages"]
    return [(message["role"], message["content"]) for message in messages]


def test_p_16_a_response_is_stored_as_it_was_answered(live: Live) -> None:
    made = make(live, metadata={"a": "b"})
    found = get(live, f"{RESPONSES}/{made['id']}")
    assert found.json() == made
    check_response(made)
    with live.http() as http:
        raw = http.post(RESPONSES, json={"model": MODEL, "input": "x\0y", "stream": True}).content
    told = read_stream(raw).finish()
    assert get(live, f"{RESPONSES}/{told['id']}").json() == told
    kept_out = make(live, store=False)
    assert error_of(get(live, f"{RESPONSES}/{kept_out['id']}"), 404)["param"] == "response_id"


def test_p_16_one_that_failed_is_stored_too(live: Live) -> None:
    with live.http() as http:
        order = {"model": MODEL, "input": "fake:token_ms=20 fake:fail_after=2", "stream": True}
        told = read_stream(http.post(RESPONSES, json=order).content).finish()
    found = get(live, f"{RESPONSES}/{told['id']}").json()
    assert found["status"] == "failed"
    check_response(found)


@pytest.mark.parametrize("forced", [True, False])
def test_p_17_a_stored_response_is_told_again_from_any_event_on(
    live: Live, *, forced: bool
) -> None:
    more: dict[str, Any] = {"tools": TOOLS, "tool_choice": "required"} if forced else {}
    made = make(live, "hi", **more)
    raw = get(live, f"{RESPONSES}/{made['id']}", stream="true").content
    reader = read_stream(raw)
    assert reader.finish() == made
    for number in range(len(reader.kinds)):
        rest = get(live, f"{RESPONSES}/{made['id']}", stream="true", starting_after=number)
        assert raw.endswith(rest.content)
        assert rest.content.count(b"\n\n") == len(reader.kinds) - number - 1


def test_p_18_deletion_is_for_good(live: Live) -> None:
    made = make(live)
    path = f"{RESPONSES}/{made['id']}"
    with live.http() as http:
        assert http.delete(path).json() == {
            "id": made["id"],
            "object": "response",
            "deleted": True,
        }
        error_of(http.delete(path), 404)
        error_of(http.get(path), 404)
        error_of(http.get(f"{path}/input_items"), 404)


def test_p_19_input_items_in_pages(live: Live) -> None:
    items = [{"role": "user", "content": str(number)} for number in range(5)]
    made = make(live, items)
    with live.client(_strict_response_validation=True) as client:
        listed = client.responses.input_items.list(made["id"], limit=2, order="asc")
        assert listed.has_next_page()
        found = [item.to_dict()["content"] for item in listed]
    assert found == [[{"type": "input_text", "text": one}] for one in "01234"]
    path = f"{RESPONSES}/{made['id']}/input_items"
    newest = get(live, path, limit=1).json()["data"][0]
    assert newest["content"] == [{"type": "input_text", "text": "4"}]
    assert error_of(get(live, path, after="msg_none"), 404)["param"] == "after"


def test_p_20_going_on_from_a_response(live: Live) -> None:
    first = make(live, "fake:text=one", instructions="not carried over")
    second = make(live, "fake:text=two", previous_response_id=first["id"])
    third = make(live, "fake:text=three", previous_response_id=second["id"], instructions="now")
    assert third["previous_response_id"] == second["id"]
    assert said(live) == [
        ("system", "now"),
        ("user", "fake:text=one"),
        ("assistant", "one"),
        ("user", "fake:text=two"),
        ("assistant", "two"),
        ("user", "fake:text=three"),
    ]
    num_before = len(live.engine.received)
    with live.http() as http:
        http.delete(f"{RESPONSES}/{first['id']}")
        body = {"model": MODEL, "input": "x", "previous_response_id": second["id"]}
        error = error_of(http.post(RESPONSES, json=body), 404)
    assert error["code"] == "previous_response_not_found"
    assert len(live.engine.received) == num_before


def test_p_20_a_tools_output_alone(live: Live) -> None:
    first = make(live, "hi", tools=TOOLS, tool_choice="required")
    call = first["output"][0]
    output = {"type": "function_call_output", "call_id": call["call_id"], "output": "4"}
    again = make(live, [output], previous_response_id=first["id"], tools=TOOLS, tool_choice="none")
    assert again["status"] == "completed"
    assert "4" in said(live)[-1][1]


def test_p_21_items_by_reference(live: Live) -> None:
    first = make(live, "fake:text=one")
    reference = {"type": "item_reference", "id": first["output"][0]["id"]}
    given = [{"role": "user", "content": "a"}, reference, {"role": "user", "content": "b"}]
    second = make(live, given)
    assert said(live) == [("user", "a"), ("assistant", "one"), ("user", "b")]
    make(live, [reference], previous_response_id=second["id"])
    assert len(said(live)) == 4  # it is there already
    with live.http() as http:
        unknown = [{"type": "item_reference", "id": "msg_none"}]
        error = error_of(http.post(RESPONSES, json={"model": MODEL, "input": unknown}), 404)
    assert error["param"] == "input[0].id"


def test_p_22_conversations(live: Live) -> None:
    with live.client(_strict_response_validation=True) as client:
        made = client.conversations.create(
            metadata={"topic": "x"}, items=[{"role": "user", "content": "hello"}]
        )
        assert client.conversations.retrieve(made.id) == made
        client.responses.create(model=MODEL, input="fake:text=one", conversation=made.id)
        client.responses.create(
            model=MODEL, input="fake:text=two", conversation={"id": made.id}, store=False
        )
        items = client.conversations.items.list(made.id, order="asc", limit=2)
        roles = [item.role for item in items if item.type == "message"]
        assert roles == ["user", "user", "assistant", "user", "assistant"]
        added = client.conversations.items.create(
            made.id, items=[{"role": "user", "content": "more"}]
        )
        new_id = added.first_id
        one = client.conversations.items.retrieve(new_id, conversation_id=made.id)
        assert one == added.data[0]
        client.conversations.items.delete(new_id, conversation_id=made.id)
        with pytest.raises(openai.NotFoundError):
            client.conversations.items.retrieve(new_id, conversation_id=made.id)
        changed = client.conversations.update(made.id, metadata={"topic": "y"})
        assert changed.metadata == {"topic": "y"}
        assert client.conversations.delete(made.id).deleted
        with pytest.raises(openai.NotFoundError):
            client.conversations.retrieve(made.id)
        with pytest.raises(openai.NotFoundError):
            client.responses.create(model=MODEL, input="x", conversation=made.id)
    assert said(live)[:4] == [
        ("user", "hello"),
        ("user", "fake:text=one"),
        ("assistant", "one"),
        ("user", "fake:text=two"),
    ]


def test_p_23_other_projects_see_nothing(live: Live) -> None:
    made = make(live)
    with live.http() as http:
        conversation = http.post(CONVERSATIONS, json={}).json()["id"]
    num_before = len(live.engine.received)
    with live.http(live.other_key) as http:
        path = f"{RESPONSES}/{made['id']}"
        for reply in (
            http.get(path),
            http.get(path, params={"stream": "true"}),
            http.delete(path),
            http.post(f"{path}/cancel"),
            http.get(f"{path}/input_items"),
            http.get(f"{CONVERSATIONS}/{conversation}"),
            http.post(f"{CONVERSATIONS}/{conversation}", json={"metadata": {}}),
            http.delete(f"{CONVERSATIONS}/{conversation}"),
            http.get(f"{CONVERSATIONS}/{conversation}/items"),
        ):
            error_of(reply, 404)
        for more in (
            {"previous_response_id": made["id"]},
            {"conversation": conversation},
            {"input": [{"type": "item_reference", "id": made["output"][0]["id"]}]},
        ):
            body = {"model": MODEL, "input": "x", **more}
            error_of(http.post(RESPONSES, json=body), 404)
    assert len(live.engine.received) == num_before
    assert get(live, path).status_code == 200


def test_p_24_a_response_is_forgotten_when_its_time_is_over(live: Live) -> None:
    made = make(live)

    async def age() -> None:
        async with live.database.unit_of_work() as session:
            statement = "UPDATE responses SET expires_at = statement_timestamp() WHERE id = :id"
            await session.execute(text(statement), {"id": made["id"]})

    live.run(age())
    error_of(get(live, f"{RESPONSES}/{made['id']}"), 404)
    assert live.run(collect_responses(live.database)) == 1
    assert live.run(collect_responses(live.database)) == 0


def test_wrong_conversations_and_pages(live: Live) -> None:
    with live.http() as http:
        many = [{"role": "user", "content": "x"}] * 21
        for body, param in (
            ({"items": many}, "items"),
            ({"items": [{"role": "critic", "content": "x"}]}, "items[0].role"),
            ({"items": [{"type": "item_reference", "id": "msg_1"}]}, "items"),
            ({"metadata": {"a": 1}}, "metadata.a"),
            ({"metadata": {"a": "\0"}}, "metadata"),
        ):
            assert error_of(http.post(CONVERSATIONS, json=body), 400)["param"] == param
        made = http.post(CONVERSATIONS).json()["id"]
        path = f"{CONVERSATIONS}/{made}/items"
        assert http.get(path).json()["data"] == []
        assert error_of(http.post(path, json={}), 400)["param"] == "items"
        for odd in ("conv_%00", "x" * 300):
            error_of(http.get(f"{CONVERSATIONS}/{odd}"), 404)
            error_of(http.get(f"{RESPONSES}/{odd}"), 404)
        foreground = make(live)["id"]
        error_of(http.post(f"{RESPONSES}/{foreground}/cancel"), 400)
