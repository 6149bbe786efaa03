from __future__ import annotations

from pathlib import Path

import pytest

from lab.workload.traces import TraceError, TraceRequest, clip_lengths, read_trace, stretch, window


def write(tmp_path: Path, *lines: str) -> Path:
    path = tmp_path / "trace.csv"
    path.write_text("\n".join(("arrival_s,input_tokens,output_tokens", *lines)) + "\n")
    return path


def test_a_trace_is_read(tmp_path: Path) -> None:
    path = write(tmp_path, "0.5,10,2", "1.5,20,3")
    assert read_trace(path) == [TraceRequest(0.5, 10, 2), TraceRequest(1.5, 20, 3)]


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        ((), "no requests"),
        (("1,2",), "trace.csv:2: 2 cells where 3 belong"),
        (("1,x,3",), "trace.csv:2: invalid literal"),
        (("1,0,3",), "trace.csv:2: lengths must be at least 1"),
        (("nan,1,3",), "trace.csv:2: an arrival of nan s"),
        (("2,1,1", "1,1,1"), "trace.csv:3: arrivals must not go back in time"),
    ],
)
def test_a_bad_trace_names_its_line(tmp_path: Path, lines: tuple[str, ...], message: str) -> None:
    with pytest.raises(TraceError, match=message):
        read_trace(write(tmp_path, *lines))


def test_the_header_is_checked(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    path.write_text("a,b,c\n1,2,3\n")
    with pytest.raises(TraceError, match="the first line must be arrival_s,input_tokens"):
        read_trace(path)


@pytest.mark.parametrize("content", [b"\xff\xfe\x00", b"1" * 140_000])
def test_what_is_no_csv_file_is_one_sentence(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "t.csv"
    path.write_bytes(content)
    with pytest.raises(TraceError, match=r"t\.csv: not a CSV file"):
        read_trace(path)


def test_a_byte_order_mark_is_no_part_of_the_header(tmp_path: Path) -> None:
    path = write(tmp_path, "1,2,3")
    path.write_bytes(b"\xef\xbb\xbf" + path.read_bytes())
    assert read_trace(path) == [TraceRequest(1.0, 2, 3)]


def test_clipping_is_reported() -> None:
    clipped = clip_lengths([TraceRequest(0, 100, 10), TraceRequest(1, 10, 100)], 50, 20)
    assert clipped.requests == [TraceRequest(0, 50, 10), TraceRequest(1, 10, 20)]
    assert (clipped.num_inputs_clipped, clipped.num_outputs_clipped) == (1, 1)


def test_a_window_starts_at_zero() -> None:
    trace = [TraceRequest(t, 1, 1) for t in (0.0, 5.0, 9.9, 10.0)]
    assert [r.arrival_s for r in window(trace, 5.0, 5.0)] == [0.0, pytest.approx(4.9)]


def test_stretching_thins_the_load_out() -> None:
    assert [r.arrival_s for r in stretch([TraceRequest(3.0, 1, 1)], 2.0)] == [6.0]
    with pytest.raises(ValueError, match="cannot be stretched by 0"):
        stretch([], 0.0)
