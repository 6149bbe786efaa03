"""The fuzzer's own parts: a seed is the same requests, and no fault of an answer is missed."""

from __future__ import annotations

import asyncio
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import orjson
import pytest

from tests.fixtures.oracles import FOLDER
from tests.fuzz.bodies import PROMPTS, Bodies
from tests.fuzz.by_hand import REQUESTS
from tests.fuzz.bystander import Bystander
from tests.fuzz.judge import faults
from tests.fuzz.minimal import without
from tests.fuzz.rows import faults_of_lines

JSON = "application/json"


@pytest.fixture(scope="module")
def document() -> dict[str, Any]:
    """What the service publishes."""
    told: dict[str, Any] = orjson.loads((FOLDER / "openapi.json").read_bytes())
    return told


def test_a_number_of_a_seed_is_one_request(document: dict[str, Any]) -> None:
    first, again, other = (Bodies(document, "m", seed) for seed in (1, 1, 2))
    same = [first.request(n).content == again.request(n).content for n in range(200)]
    assert all(same)
    assert sum(first.request(n).content == other.request(n).content for n in range(200)) < 100
    assert first.rows(3, 5) == again.rows(3, 5)


def test_requests_go_to_every_route(document: dict[str, Any]) -> None:
    bodies = Bodies(document, "m", 1)
    asked = {(sent.method, sent.template) for sent in map(bodies.request, range(3000))}
    routes = {(m.upper(), path) for path, methods in document["paths"].items() for m in methods}
    assert asked == routes
    assert {bodies.rows(number, 1)[0] for number in range(60)} == PROMPTS.keys()


def test_what_was_written_by_hand_is_sent_whole_streamed_and_as_rows(
    document: dict[str, Any],
) -> None:
    bodies = Bodies(document, "m", 1)
    rounds = list(bodies.rounds_by_hand(40))
    numbers = [number for some, _ in rounds for number in some]
    assert sorted(numbers) == list(range(-2 * len(REQUESTS), 0))
    assert len(REQUESTS) > 300
    for some, (path, rows) in rounds:
        sent = [bodies.request(number) for number in some]
        assert {one.path for one in sent} == {path}
        assert [one.body for one in sent if one.number % 2] == rows
        assert all(one.content for one in sent), "lenient JSON has every value"
    assert {path for _, (path, _) in rounds} == PROMPTS.keys()


class _Slow(BaseHTTPRequestHandler):
    def do_POST(self) -> None:
        self.send_response(200)
        self.end_headers()
        for pause_s in (0.0, 0.3):
            time.sleep(pause_s)
            self.wfile.write(b"data: {}\n\n")

    def log_message(self, *_: Any) -> None:
        """Says nothing."""


async def test_another_caller_tells_how_long_it_waited() -> None:
    server = ThreadingHTTPServer(("127.0.0.1", 0), _Slow)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    other = Bystander(f"http://127.0.0.1:{server.server_port}", "k", "m")
    async with asyncio.TaskGroup() as group:
        reading = group.create_task(other.read())
        waited_s, odd = other.take()
        async with asyncio.timeout(20):
            while waited_s < 0.3:
                await asyncio.sleep(0.1)
                waited_s, odd = other.take()
        reading.cancel()
    server.shutdown()
    server.server_close()
    assert odd == []


def error(message: str, code: str | None = None, kind: str = "invalid_request_error") -> Any:
    return {"error": {"message": message, "type": kind, "code": code, "param": None}}


@pytest.mark.parametrize(
    ("status", "kind", "said", "found"),
    [
        (200, JSON, {"choices": [{"message": {"content": "a KeyError in x.py"}}]}, 0),
        (400, JSON, error("'n' must be at least 1."), 0),
        (404, JSON, error("No such file.", "not_found"), 0),
        (400, JSON, {"detail": "no"}, 1),
        (400, "text/html", "<h1>Bad</h1>", 1),
        (503, JSON, error("Please try again.", "engine_unavailable", "server_error"), 1),
        (500, "text/plain", "Internal Server Error", 2),
        (400, JSON, error("ValueError: bad"), 1),
        (400, JSON, error("1 validation error for ChatCompletionRequest"), 1),
        (400, JSON, error("'NoneType' object has no attribute 'x'"), 1),
        (200, JSON, {"status": "failed", "error": {"code": "server_error", "message": "x"}}, 1),
        (200, JSON, {"errors": {"data": [{"code": "x", "message": "TypeError"}]}}, 1),
    ],
)
def test_what_is_wrong_with_an_answer(status: int, kind: str, said: Any, found: int) -> None:
    content = said.encode() if isinstance(said, str) else orjson.dumps(said)
    assert len(faults(status, kind, content)) == found


def test_errors_inside_streams() -> None:
    calm = b'data: {"choices": []}\n\ndata: [DONE]\n\n'
    kind = "text/event-stream; charset=utf-8"
    assert faults(200, kind, calm) == []
    bad = b"data: " + orjson.dumps(error("gone", None, "server_error")) + b"\n\n"
    assert faults(200, kind, bad + calm) == ["200: server_error inside an answer"]
    typed = b'event: error\ndata: {"type": "error", "code": "server_error", "message": "gone"}\n\n'
    assert faults(200, kind, typed) == ["200: server_error inside an answer"]


def test_what_is_wrong_with_a_row() -> None:
    rows = [{"prompt": "a"}, {"prompt": "b"}, {"prompt": "c"}]
    lines = [
        {"custom_id": "0", "response": {"status_code": 200, "body": {}}, "error": None},
        {"custom_id": "1", "response": {"status_code": 500, "body": error("x")}, "error": None},
        {"custom_id": "2", "response": None, "error": {"code": "x", "message": "KeyError: 'a'"}},
    ]
    content = b"".join(orjson.dumps(line) + b"\n" for line in lines)
    found = [what for what, _ in faults_of_lines(content, rows)]
    assert found == ["row: 500: invalid_request_error", "row: 200: internal word 'KeyError'"]
    assert len(list(faults_of_lines(b"{not json}\n", rows))) == 1


def test_a_body_without_one_part_after_the_other() -> None:
    body = {"a": [1, {"b": 2}], "c": 3}
    tried = [without(body, place) for place in range(6)]
    assert tried == [
        {"c": 3}, {"a": [{"b": 2}], "c": 3}, {"a": [1], "c": 3}, {"a": [1, {}], "c": 3},
        {"a": [1, {"b": 2}]}, None,
    ]  # fmt: skip


def test_lines_of_json_are_looked_at_one_by_one() -> None:
    """A batch's results with several lines are no JSON as a whole."""
    assert not faults(200, "application/jsonl", b'{"a": 1}\n{"b": 2}\n')
    assert faults(200, "application/jsonl", b'{"a": 1}\n{"b": \n') == ["200: not JSON"]
