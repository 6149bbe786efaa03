"""Long lists are made and sent in slices; what they say is what any list says."""

from __future__ import annotations

import asyncio
import time
from typing import Any

import orjson
import pytest

from gateway.http.streaming_list import PIECE_BYTES, SLICE_S, ListResponse, dumped


async def test_others_have_their_turn_while_a_list_is_made() -> None:
    turns = 0

    async def others() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    def slow(item: int) -> bytes:
        time.sleep(2 * SLICE_S)
        return str(item).encode()

    async with asyncio.TaskGroup() as group:
        task = group.create_task(others())
        assert await dumped(range(5), slow) == [b"0", b"1", b"2", b"3", b"4"]
        task.cancel()
    assert turns >= 5


@pytest.mark.parametrize("items", [[], [{"id": "a"}], [{"id": f"{n}" * 1000} for n in range(500)]])
async def test_a_list_is_one_json_object_in_small_pieces(items: list[dict[str, str]]) -> None:
    sent: list[Any] = []

    async def send(message: Any) -> None:
        sent.append(message)

    async def receive() -> Any:
        raise AssertionError

    ids = (items[0]["id"], items[-1]["id"]) if items else None
    response = ListResponse([orjson.dumps(one) for one in items], ids, has_more=bool(items))
    await response({"type": "http"}, receive, send)
    head, *bodies = sent
    pieces = [message["body"] for message in bodies]
    assert orjson.loads(b"".join(pieces)) == {
        "object": "list",
        "data": items,
        "first_id": ids and ids[0],
        "last_id": ids and ids[1],
        "has_more": bool(items),
    }
    assert dict(head["headers"])[b"content-length"] == str(len(b"".join(pieces))).encode()
    assert dict(head["headers"])[b"content-type"] == b"application/json"
    assert max(map(len, pieces)) < 2 * PIECE_BYTES
    assert not bodies[-1].get("more_body")
