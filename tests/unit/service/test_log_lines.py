"""One schema for every line, and never the words of an exception."""

from __future__ import annotations

import io
import json
import logging
import sys
from collections.abc import Iterator
from typing import Any

import pytest

from service import log_lines
from service.log_lines import JsonLines, TextLines

CANARY = "the-prompt-nobody-may-see"


def record(name: str, said: str, *args: Any, error: bool = False, **more: Any) -> logging.LogRecord:
    info = sys.exc_info() if error else None
    made = logging.LogRecord(name, logging.ERROR, "x.py", 1, said, args, info)
    made.__dict__.update(more)
    return made


def as_json(one: logging.LogRecord) -> dict[str, Any]:
    text = JsonLines("gateway").format(one)
    assert "\n" not in text
    told: dict[str, Any] = json.loads(text)
    return told


@pytest.fixture
def request_id() -> Iterator[str]:
    token = log_lines.request_id.set("req_1")
    yield "req_1"
    log_lines.request_id.reset(token)


def test_every_line_has_the_same_keys(request_id: str) -> None:
    told = as_json(record("gateway.access", "request", fields={"status": 200}))
    assert list(told) == ["at", "level", "part", "logger", "message", "request_id", "status"]
    assert told["at"].endswith("Z")
    assert (told["level"], told["part"], told["status"]) == ("error", "gateway", 200)
    assert told["request_id"] == request_id


def test_a_lines_own_request_comes_before_the_present_one(request_id: str) -> None:
    told = as_json(record("gateway.access", "request", fields={"request_id": "req_2"}))
    assert told["request_id"] == "req_2"


@pytest.mark.parametrize("form", [JsonLines, TextLines])
def test_the_words_of_exceptions_are_left_out(form: type[logging.Formatter]) -> None:
    try:
        try:
            raise ValueError(CANARY)
        except ValueError as cause:
            raise RuntimeError(CANARY) from cause
    except RuntimeError:
        ours = record("gateway.x", "row %d failed", 7, error=True)
        foreign = record("uvicorn.error", "failed: %s", CANARY, error=True)
        task = record(
            "celery.app.trace", "%(name)s: %(exc)s", {"name": "dispatch", "exc": CANARY}, error=True
        )
    for one in (ours, foreign, task):
        text = form("gateway").format(one)
        assert CANARY not in text
        assert "RuntimeError" in text
        assert "ValueError" in text
        assert "test_the_words_of_exceptions_are_left_out" in text
    assert "row 7 failed" in form("gateway").format(ours)
    assert "dispatch" in form("gateway").format(task)


def test_what_asyncio_says_of_a_lost_task_ends_before_its_exception() -> None:
    said = f"Task exception was never retrieved\nfuture: <Task exception=RuntimeError('{CANARY}')>"
    assert as_json(record("asyncio", said))["message"] == "Task exception was never retrieved"


def test_members_of_a_group_are_told() -> None:
    try:
        raise ExceptionGroup(CANARY, [ValueError(CANARY), KeyError(CANARY)])
    except ExceptionGroup:
        told = as_json(record("batch.x", "failed", error=True))
    assert [one["type"] for one in told["error"]["members"]] == ["ValueError", "KeyError"]
    assert CANARY not in json.dumps(told)


def test_text_is_one_line_with_its_fields() -> None:
    line = TextLines("beat").format(record("batch.x", "two\nlines", fields={"path": "/a b"}))
    assert line.endswith('ERROR beat batch.x two | lines path="/a b"')


def test_what_is_logged_together_leaves_in_one_piece(monkeypatch: pytest.MonkeyPatch) -> None:
    written: list[str] = []

    class Stream(io.StringIO):
        def write(self, text: str) -> int:
            written.append(text)
            return len(text)

    monkeypatch.setattr(sys, "stderr", Stream())
    root = logging.getLogger()
    before, level = [*root.handlers], root.level
    try:
        log_lines.configure("gateway", "json", logging.INFO)
        with log_lines.together():
            for number in range(3):
                logging.getLogger("gateway.access").info("request %d", number)
            logging.getLogger("gateway.access").info("of %d", "no number")
            assert not [text for text in written if text.startswith("{")]
        logging.getLogger("gateway").warning("later")
    finally:
        root.handlers[:] = before
        root.setLevel(level)
    first, later = ([json.loads(line) for line in text.splitlines()] for text in _lines(written))
    assert [line["message"] for line in first] == ["request 0", "request 1", "request 2"]
    assert [line["message"] for line in later] == ["later"]


def _lines(written: list[str]) -> list[str]:
    return [text for text in written if text.startswith("{")]
