from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine_adapter.client.sse import MAX_IDLE_BYTES, EventParser, EventTooLong


def test_events_comments_and_other_fields() -> None:
    stream = b': hello\n\ndata: {"a":1}\n\nevent: x\ndata: one\ndata:two\nid: 3\n\ndata: [DONE]\n\n'
    assert EventParser().feed(stream) == [b'{"a":1}', b"one\ntwo", b"[DONE]"]


@given(
    st.lists(
        st.text(st.characters(codec="utf-8", exclude_characters="\r\n"), min_size=1), max_size=5
    ),
    st.sampled_from(["\n", "\r\n", "\r"]),
    st.data(),
)
def test_however_the_bytes_are_cut_the_events_are_the_same(
    texts: list[str], newline: str, data: st.DataObject
) -> None:
    # An event before the last one: a lone \r at the very end waits for its \n.
    stream = "".join(f"data: {text}{newline}{newline}" for text in [*texts, "end", "never"])
    raw = stream.encode()
    cuts = sorted(data.draw(st.lists(st.integers(0, len(raw)), max_size=6)))
    parser, events, start = EventParser(), [], 0
    for cut in [*cuts, len(raw)]:
        if cut > start:
            events += parser.feed(raw[start:cut])
            start = cut
    wanted = [text.encode() for text in [*texts, "end"]]
    assert events[: len(wanted)] == wanted


def test_an_event_without_end_is_refused() -> None:
    parser = EventParser(max_event_bytes=100)
    assert parser.feed(b"data: 12345") == []
    with pytest.raises(EventTooLong):
        parser.feed(b"x" * 100)


@pytest.mark.parametrize(
    "idle", [b": still here\n\n", b"\n\n", b"event: x\r\n\r\n", b"id: 1\n\n\n\n"]
)
def test_comments_without_end_are_refused(idle: bytes) -> None:
    parser = EventParser()
    for _ in range(MAX_IDLE_BYTES // (16 * len(idle))):
        assert parser.feed(idle * 8) == []
    with pytest.raises(EventTooLong):
        parser.feed(idle * MAX_IDLE_BYTES)


def test_comments_between_events_may_be_any_number() -> None:
    parser = EventParser()
    for _ in range(MAX_IDLE_BYTES // 8):
        assert parser.feed(b": still here\n\ndata: 1\n\n") == [b"1"]


def test_a_long_event_is_put_together_once() -> None:
    """Its pieces are not copied for each that comes: the work is that of its bytes."""
    parser = EventParser()
    piece = b"x" * 1000
    assert parser.feed(b"data: ") == []
    for _ in range(2000):
        assert parser.feed(piece) == []
        assert parser._tail[-1] is piece
    assert parser.feed(b"\n") == []
    assert parser.feed(b"\ndata: 2") == [piece * 2000]
    assert parser.feed(b"\r") == []
    assert parser.feed(b"\n\r\n") == [b"2"]
