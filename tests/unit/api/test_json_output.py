"""What leaves is one line for every reader, and says the same as before."""

from __future__ import annotations

from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from api.chunks import ChunkWriter, StreamHead, event_of
from api.json_output import FEW_ITEMS, dump, dump_long, let_go_of_lists, one_line
from api.responses.events import event_bytes
from batch.finish.output import failure_line, http_line

ENDS = ("\u2028", "\u2029", "\u0085")
TEXT = st.text(st.one_of(st.characters(codec="utf-8"), st.sampled_from(ENDS)))
VALUE = st.recursive(TEXT | st.integers(0, 9), lambda v: st.lists(v) | st.dictionaries(TEXT, v))


@given(VALUE)
def test_one_line_that_says_the_same(value: object) -> None:
    made = dump(value)
    assert len(made.decode().splitlines()) == 1
    assert orjson.loads(made) == value
    assert one_line(made) == made


@pytest.mark.parametrize("end", ENDS)
def test_lines_of_files_and_events_of_streams(end: str) -> None:
    said = f"a{end}b"
    body = {"choices": [{"message": {"content": said}}]}
    made = [
        http_line(1, said, status_code=200, request_id="req_1", body=body),
        failure_line(1, said, code="x", message=said),
        event_of({"error": {"message": said}}).rstrip(b"\n"),
        event_bytes([{"type": "t", "text": said}]).partition(b"\n")[2].rstrip(b"\n"),
    ]
    assert [len(one.decode().splitlines()) for one in made] == [1] * len(made)


@pytest.mark.parametrize("chat", [True, False])
@pytest.mark.parametrize("end", ENDS)
def test_chunks_parsed_and_copied(end: str, *, chat: bool) -> None:
    head = StreamHead(chat=chat, public_id="id", created=1, model="m", include_usage=False)
    writer = ChunkWriter(head, 0)
    out = b""
    for place in range(3):
        text = f"{place}{end}"
        said = {"delta": {"content": text}} if chat else {"text": text}
        choice = {"index": 0, **said, "logprobs": None, "finish_reason": None}
        out += writer.feed(orjson.dumps({"choices": [choice], "usage": {"prompt_tokens": 1}}))
    texts = []
    for event in out.decode().splitlines():
        if event:
            made = orjson.loads(event.removeprefix("data: "))["choices"][0]
            texts.append(made["delta"].get("content", "") if chat else made["text"])
    assert "".join(texts) == f"0{end}1{end}2{end}"


@given(VALUE, st.integers(1, 200))
def test_a_long_value_is_written_as_any_other(value: object, times: int) -> None:
    whole: dict[str, Any] = {"many": [value] * times, "one": value}
    assert dump_long(whole) == dump(whole)
    let_go_of_lists(whole)
    assert len(whole["many"]) <= FEW_ITEMS
