"""A film of terminals: what was shown, once each, in the right order."""

from __future__ import annotations

import re
from xml.etree import ElementTree

import pyte

from tests.recording.film import Frame, distinct, lines_of, svg


def screen(written: bytes) -> pyte.Screen:
    made = pyte.Screen(20, 3)
    pyte.ByteStream(made).feed(written)
    return made


def test_lines_are_runs_of_one_style_without_what_trails() -> None:
    first, second, third = lines_of(screen(b"a \x1b[1;32mgreen\x1b[0m b\r\n\r\nend"))
    assert [(text, bold) for text, _, bold in first] == [
        ("a ", False),
        ("green", True),
        (" b", False),
    ]
    assert second == ()
    assert third[0][0] == "end"


def test_frames_that_change_nothing_are_left_out() -> None:
    one, other = lines_of(screen(b"one")), lines_of(screen(b"other"))
    frames = [Frame(0.0, one), Frame(0.2, one), Frame(0.4, other), Frame(0.6, one)]
    assert [frame.at_s for frame in distinct(frames)] == [0.0, 0.4, 0.6]


def test_the_film_is_valid_and_draws_each_line_once() -> None:
    one, other = lines_of(screen(b"a < b & c")), lines_of(screen(b"a < b & c\r\nmore"))
    film = svg([Frame(0.0, one), Frame(1.0, other)], 20, "a title")
    root = ElementTree.fromstring(film)
    assert root.tag.endswith("svg")
    assert film.count("a &lt; b &amp; c") == 1
    assert len(re.findall("<use ", film)) == 3
    assert "20.000%{transform" in film
    assert "<script" not in film
