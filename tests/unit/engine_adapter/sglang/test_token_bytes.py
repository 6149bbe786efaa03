"""Tokens that hold part of a character tell their own bytes."""

from __future__ import annotations

import json
from types import SimpleNamespace

import pytest

from engine_adapter.sglang import token_bytes
from engine_adapter.sglang.token_bytes import PartialText, raw_bytes, with_bytes

BYTE_OF = {"ð": 0xF0, "Ł": 0x9F, "a": 0x61}


@pytest.mark.parametrize(
    ("token", "raw"),
    [("ðŁ", b"\xf0\x9f"), ("<0xE2>", b"\xe2"), ("aŁ", b"a\x9f"), ("<other>", None), (None, None)],
)
def test_an_entry_of_either_kind_of_vocabulary(token: str | None, raw: bytes | None) -> None:
    assert raw_bytes(token, BYTE_OF) == raw


def test_only_what_is_no_whole_text_is_changed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(token_bytes, "byte_of_char", lambda: BYTE_OF)
    names = {7: "ðŁ", 8: "<special>"}
    manager = SimpleNamespace(tokenizer=SimpleNamespace(convert_ids_to_tokens=names.__getitem__))
    found = [(-0.5, 3, "whole"), (-1.0, 7, "\ufffd"), (-2.0, 8, "\ufffd"), (-3.0, 9, None)]
    told = with_bytes(found, manager, [], [], decode_to_text=True)
    assert told == found, "the texts are as they were"
    texts = [text for _, _, text in told if text is not None]
    assert [text.encode() for text in texts] == [b"whole", b"\xf0\x9f", "\ufffd".encode()]
    assert json.dumps(texts[1]) == '"\\ufffd"'


def test_other_encodings_are_the_texts() -> None:
    assert PartialText.of("\ufffd", b"\xf0").encode("utf-16-le") == "\ufffd".encode("utf-16-le")
