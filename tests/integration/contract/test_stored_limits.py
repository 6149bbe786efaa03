"""What is stored has an end, a page and a quota: asked before anything of it is read."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from sqlalchemy import text

from gateway.responses.shelf import MAX_HISTORY
from store.models import DEFAULT_PROJECT_ID
from store.repositories import quota as quotas
from tests.integration.contract.conftest import MODEL, Live, error_of

RESPONSES, CONVERSATIONS = "/v1/responses", "/v1/conversations"


def execute(live: Live, statement: str, **values: object) -> None:
    async def run() -> None:
        async with live.database.unit_of_work() as session:
            await session.execute(text(statement), values)

    live.run(run())


def message(text_: str) -> dict[str, str]:
    return {"role": "user", "content": text_}


@pytest.mark.parametrize("by", ["conversation", "previous_response_id", "input"])
@pytest.mark.parametrize("what", ["items", "bytes"])
def test_a_history_that_is_too_long_is_refused_before_it_is_read(
    live: Live, by: str, what: str
) -> None:
    # Bytes that are no JSON: reading them would be a 500.
    num_bytes = MAX_HISTORY.num_bytes + 1 if what == "bytes" else 1
    num_items = MAX_HISTORY.num_items + 1 if what == "items" else 1
    with live.http() as http:
        made = http.post(RESPONSES, json={"model": MODEL, "input": "x"}).json()
        talk = http.post(CONVERSATIONS, json={"items": [message("x")]}).json()["id"]
        execute(
            live,
            "INSERT INTO conversation_items (conversation_id, id, item)"
            " SELECT :id, 'i' || n, convert_to(repeat('x', :bytes), 'UTF8')"
            " FROM generate_series(1, :items) n",
            id=talk, bytes=num_bytes, items=num_items,
        )  # fmt: skip
        execute(
            live,
            "UPDATE responses SET body = convert_to(repeat('x', :bytes), 'UTF8'), item_ids ="
            " item_ids || ARRAY(SELECT 'i' || n FROM generate_series(1, :items) n) WHERE id = :id",
            id=made["id"], bytes=num_bytes, items=num_items,
        )  # fmt: skip
        reference = [{"type": "item_reference", "id": made["output"][0]["id"]}]
        named = {"conversation": talk, "previous_response_id": made["id"], "input": reference}[by]
        asked = len(live.engine.received)
        reply = http.post(RESPONSES, json={"model": MODEL, "input": "more", by: named})
        error = error_of(reply, 400)
    assert (error["code"], error["param"]) == ("history_too_long", by)
    assert len(live.engine.received) == asked


def test_one_item_and_a_page_read_no_more_than_they_tell(live: Live) -> None:
    with live.http() as http:
        given = [message(f"m{n}") for n in range(5)]
        talk = http.post(CONVERSATIONS, json={"items": given}).json()["id"]
        path = f"{CONVERSATIONS}/{talk}/items"
        ids = [item["id"] for item in http.get(path, params={"order": "asc"}).json()["data"]]
        # The last is no JSON, so whoever reads it fails.
        execute(live, "UPDATE conversation_items SET item = 'x'::bytea WHERE id = :id", id=ids[4])
        assert http.get(f"{path}/{ids[0]}").json()["id"] == ids[0]
        page = http.get(path, params={"order": "asc", "limit": 2, "after": ids[0]}).json()
        assert [item["id"] for item in page["data"]] == ids[1:3]
        assert page["has_more"] is True
        page = http.get(path, params={"order": "desc", "limit": 9, "after": ids[4]}).json()
        assert [item["id"] for item in page["data"]] == ids[3::-1]
        assert page["has_more"] is False
        error_of(http.get(path, params={"after": "\0"}), 404)
        error_of(http.get(f"{path}/%00"), 404)


def test_a_page_ends_where_its_items_are_long(live: Live) -> None:
    with live.http() as http:
        talk = http.post(CONVERSATIONS).json()["id"]
        path = f"{CONVERSATIONS}/{talk}/items"
        execute(
            live,
            "INSERT INTO conversation_items (conversation_id, id, item) SELECT :id, 'i' || n,"
            """ convert_to('{"id":"i' || n || '","x":"' || repeat('x', 900000) || '"}', 'UTF8')"""
            " FROM generate_series(1, 5) n",
            id=talk,
        )
        first = http.get(path).json()
        assert ([one["id"] for one in first["data"]], first["has_more"]) == (
            ["i5", "i4", "i3", "i2"],
            True,
        )
        rest = http.get(path, params={"after": first["last_id"]}).json()
        assert ([one["id"] for one in rest["data"]], rest["has_more"]) == (["i1"], False)


@pytest.fixture
def room(live: Live) -> Iterator[int]:
    """The project may store so many more bytes."""

    async def stored() -> int:
        async with live.database.snapshot() as session:
            return await quotas.stored_bytes(session, DEFAULT_PROJECT_ID)

    limited = "UPDATE projects SET stored_bytes = :most WHERE id = :id"
    execute(live, limited, most=live.run(stored()) + 5000, id=DEFAULT_PROJECT_ID)
    yield 5000
    execute(live, limited, most=None, id=DEFAULT_PROJECT_ID)


def test_responses_and_conversations_count_as_stored_bytes(live: Live, room: int) -> None:
    much = "x" * (room + 1000)
    with live.http() as http:
        talk = http.post(CONVERSATIONS).json()["id"]
        path = f"{CONVERSATIONS}/{talk}/items"
        asked = len(live.engine.received)
        for reply in (
            http.post(RESPONSES, json={"model": MODEL, "input": much}),
            http.post(RESPONSES, json={"model": MODEL, "input": much, "background": True}),
            http.post(CONVERSATIONS, json={"items": [message(much)]}),
            http.post(path, json={"items": [message(much)]}),
        ):
            assert error_of(reply, 429)["code"] == "storage_limit_exceeded"
        assert len(live.engine.received) == asked
        body = {"model": MODEL, "input": much, "store": False}
        assert http.post(RESPONSES, json=body).status_code == 200
        # What is stored counts against what comes, whatever its kind; what has expired does not.
        half = "x" * (room // 2)
        assert http.post(path, json={"items": [message(half)]}).status_code == 200
        error_of(http.post(RESPONSES, json={"model": MODEL, "input": half}), 429)
        execute(
            live,
            "UPDATE conversations SET expires_at = statement_timestamp() WHERE id = :id",
            id=talk,
        )
        reply = http.post(RESPONSES, json={"model": MODEL, "input": half})
        assert reply.status_code == 200
        error_of(http.get(f"{CONVERSATIONS}/{talk}"), 404)
