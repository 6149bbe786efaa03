"""Items as they are stored, and back."""

from __future__ import annotations

import sys
from typing import Any

import orjson
import pytest

from api.json_output import dump
from api.responses.items import PIECE_BYTES, listed, unpacked

ODD = ['},{"id":"x', '"},{"id":', "\\", '\\"},{', "\u2028", "[", '{"id":"a"},{"id":"b"}']


def given(num: int) -> list[dict[str, Any]]:
    return [
        {"role": "user", "content": [{"type": "input_text", "text": ODD[n % len(ODD)] * (n % 50)}]}
        for n in range(num)
    ]


@pytest.mark.parametrize("num", [0, 1, 2, 1000, 4096])
def test_they_come_back_as_they_were(num: int) -> None:
    items = listed(given(num), "0" * 32)
    assert unpacked(dump(items)) == items


def test_a_cut_within_an_item_is_noticed() -> None:
    inner = [{"id": "b" * 60, "more": {"id": "c" * 60}} for _ in range(2000)]
    items = [{"id": "a", "inner": inner}, {"id": "d", "inner": inner}]
    assert unpacked(orjson.dumps(items)) == items


def test_no_call_of_the_parser_takes_many_items() -> None:
    stored = dump(listed([{"role": "user", "content": f"{n}"} for n in range(4096)], "0" * 32))
    calls = list[str]()

    def note(frame: object, event: str, argument: Any) -> None:
        if event == "c_call":
            calls.append(argument.__name__)

    sys.setprofile(note)
    try:
        unpacked(stored)
    finally:
        sys.setprofile(None)
    assert calls.count("loads") > len(stored) / PIECE_BYTES - 2 > 10
