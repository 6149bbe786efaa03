"""Whatever the official client sends is known by name: served, or refused with what to do."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from api.chat_request import check_chat
from api.responses.request import check_response
from api.responses.tools import SKIPPED_ITEMS, SKIPPED_TOOLS
from batch.intake.upload import UPLOAD_PURPOSES
from tests.openai_fields import BODIES, DATA, installed, unknown


def test_each_field_of_the_data_is_known() -> None:
    data = json.loads(DATA.read_text())
    assert data["fields"].keys() == BODIES.keys()
    assert all(len(names) > 3 for names in data["fields"].values())
    assert unknown(data["fields"]) == []


def test_the_data_has_each_field_of_the_installed_client() -> None:
    """Or the data is older than the client: write it anew."""
    data = json.loads(DATA.read_text())["fields"]
    for path, names in installed()["fields"].items():
        assert set(names) <= set(data[path]), path


def test_what_is_not_known_is_named() -> None:
    assert unknown({"/v1/responses": ["input", "newest_field"]}) == ["/v1/responses newest_field"]


PIXEL = (
    "data:image/png;base64,iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGA"
    "WjR9awAAAABJRU5ErkJggg=="
)
HI: list[Any] = [{"role": "user", "content": "hi"}]


def body_with(field: str, word: str) -> tuple[Callable[[Any], None], dict[str, Any]]:
    of_chat, _, name = field.rpartition(" ")
    chat: dict[str, Any] = {"model": "m", "messages": HI}
    response: dict[str, Any] = {"model": "m", "input": "hi"}
    if field == "chat detail":
        part = {"type": "image_url", "image_url": {"url": PIXEL, "detail": word}}
        return check_chat, {**chat, "messages": [{"role": "user", "content": [part]}]}
    if of_chat:
        return check_chat, {**chat, name: word}
    if field == "detail":
        part = {"type": "input_image", "image_url": PIXEL, "detail": word}
        return check_response, {**response, "input": [{"role": "user", "content": [part]}]}
    if field in ("effort", "summary"):
        return check_response, {**response, "reasoning": {field: word}}
    return check_response, {**response, field: [word] if field == "include" else word}


def test_each_word_of_the_data_is_a_legal_value() -> None:
    words = json.loads(DATA.read_text())["words"]
    assert set(words.pop("purpose")) <= {*UPLOAD_PURPOSES}
    for field, values in words.items():
        assert len(values) > 1
        for word in values:
            check, body = body_with(field, word)
            check(body)


def test_each_kind_of_the_data_is_served_or_skipped() -> None:
    kinds = json.loads(DATA.read_text())["kinds"]
    assert set(kinds["tools"]) - SKIPPED_TOOLS == {"function", "namespace"}
    served = {"message", "function_call", "function_call_output", "reasoning", "item_reference"}
    assert set(kinds["items"]) - SKIPPED_ITEMS == served | {"additional_tools"}


def test_the_data_has_each_word_of_the_installed_client() -> None:
    data, here = json.loads(DATA.read_text()), installed()
    for part in ("words", "kinds"):
        for name, values in here[part].items():
            assert set(values) <= set(data[part][name]), name
