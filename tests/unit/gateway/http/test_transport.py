"""A head leaves with the body that follows in the same turn of the loop, and never later."""

from __future__ import annotations

import asyncio
from typing import cast

from gateway.http.transport import HeadWithBody

HEAD = b"HTTP/1.1 200 OK\r\n\r\n"


class Recorder:
    """A transport that remembers what it was told."""

    def __init__(self) -> None:
        self.said: list[bytes | str] = []
        self.closing = False

    def write(self, data: bytes) -> None:
        self.said.append(data)

    def write_eof(self) -> None:
        self.said.append("eof")

    def close(self) -> None:
        self.closing = True
        self.said.append("close")

    def abort(self) -> None:
        self.closing = True
        self.said.append("abort")

    def pause_reading(self) -> None:
        self.said.append("pause")

    def resume_reading(self) -> None:
        self.said.append("resume")

    def is_closing(self) -> bool:
        return self.closing


def made() -> tuple[HeadWithBody, Recorder]:
    recorder = Recorder()
    inner = cast(asyncio.Transport, recorder)
    return HeadWithBody(inner, asyncio.get_running_loop()), recorder


async def turn() -> None:
    await asyncio.sleep(0)
    await asyncio.sleep(0)


async def test_head_and_body_are_one_write() -> None:
    transport, recorder = made()
    transport.write(HEAD)
    transport.write(b"body")
    assert recorder.said == [HEAD + b"body"]
    await turn()
    assert recorder.said == [HEAD + b"body"]


async def test_a_head_alone_leaves_at_the_end_of_the_turn() -> None:
    transport, recorder = made()
    transport.write(HEAD)
    assert recorder.said == []
    await turn()
    assert recorder.said == [HEAD]
    transport.write(b"first chunk")
    assert recorder.said == [HEAD, b"first chunk"]


async def test_two_heads_in_one_turn_keep_their_order() -> None:
    transport, recorder = made()
    transport.write(HEAD)
    transport.write(HEAD + b"body")
    await turn()
    assert b"".join(cast("list[bytes]", recorder.said)) == HEAD + HEAD + b"body"


async def test_what_is_written_leaves_before_the_end() -> None:
    for end, word in ((HeadWithBody.close, "close"), (HeadWithBody.write_eof, "eof")):
        transport, recorder = made()
        transport.write(HEAD)
        end(transport)
        assert recorder.said == [HEAD, word]


async def test_an_aborted_connection_sends_nothing_more() -> None:
    transport, recorder = made()
    transport.write(HEAD)
    transport.abort()
    await turn()
    assert recorder.said == ["abort"]


async def test_everything_else_is_the_transports() -> None:
    transport, recorder = made()
    recorder.closing = True
    assert transport.is_closing() is True


async def test_the_socket_is_read_when_neither_the_app_nor_the_parser_stops_it() -> None:
    transport, recorder = made()
    transport.hold(is_held=True)
    transport.pause_reading()
    transport.resume_reading()
    assert "resume" not in recorder.said
    transport.hold(is_held=True)
    transport.pause_reading()
    transport.hold(is_held=False)
    assert "resume" not in recorder.said
    transport.resume_reading()
    assert recorder.said == ["pause", "pause", "pause", "resume"]
    transport.close()
    transport.hold(is_held=True)
    assert recorder.said[-1] == "close"
