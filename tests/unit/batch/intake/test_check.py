"""A whole file, judged while it streams by (rows B-13 to B-26)."""

from __future__ import annotations

from typing import Any

import orjson
import pytest

from batch.intake import check as subject
from batch.intake.check import (
    DOCUMENTED_LIMITS,
    MAX_REPORTED_BYTES,
    MAX_REPORTED_FAULTS,
    CheckLimits,
    CheckReport,
    FileCheck,
)
from engine_adapter.client.base import EMBEDDINGS_PATH

CHAT = "/v1/chat/completions"


def line(custom_id: str, *, model: str = "m", content: str = "hi", **top: Any) -> bytes:
    messages = [{"role": "user", "content": content}]
    body = {"model": model, "messages": messages}
    return orjson.dumps(
        {"custom_id": custom_id, "method": "POST", "url": CHAT, "body": body, **top}
    )


def check(
    data: bytes,
    *,
    served: dict[str, bool] | None = None,
    step: int = 64,
    limits: CheckLimits = DOCUMENTED_LIMITS,
) -> CheckReport:
    checked = FileCheck(CHAT, served_models=served, limits=limits)
    for start in range(0, len(data), step):
        checked.feed(data[start : start + step])
    return checked.finish()


def faults(report: CheckReport) -> list[tuple[str, int | None]]:
    return [(fault.code, fault.line) for fault in report.faults]


def test_a_good_file_becomes_rows() -> None:
    data = b"\xef\xbb\xbf" + line("a") + b"\r\n\n" + line("b") + b"\n"
    report = check(data, served={"m": True})
    assert report.ok
    assert report.faults == []
    assert (report.model, report.num_lines, report.num_bytes) == ("m", 2, len(data))
    rows = list(report.rows)
    assert [(row.custom_id, row.line_no) for row in rows] == [("a", 1), ("b", 3)]
    for row in rows:
        raw = data[row.offset_bytes : row.offset_bytes + row.length_bytes]
        assert orjson.loads(raw)["custom_id"] == row.custom_id


@pytest.mark.parametrize("data", [b"", b"\n\n", b" \r\n\t\n", b"\xef\xbb\xbf"])
@pytest.mark.contract("B-22")
def test_an_empty_file(data: bytes) -> None:
    assert faults(check(data)) == [("empty_file", None)]


@pytest.mark.contract("B-24", "B-26")
def test_every_fault_of_every_line_with_its_number() -> None:
    data = b"\n".join(
        [
            line("a"),
            b"{broken",
            b"",
            line("b", method="GET"),
            line("a"),
            line("c", model="other"),
            b"\xff",
            line("d", url="/v1/embeddings"),
            line("a"),
        ]
    )
    assert faults(check(data)) == [
        ("invalid_json_line", 2),
        ("invalid_method", 4),
        ("duplicate_custom_id", 5),
        ("mismatched_model", 6),
        ("invalid_utf8", 7),
        ("invalid_url", 8),
        ("duplicate_custom_id", 9),
    ]


def test_a_duplicate_names_the_line_that_was_first_even_if_that_is_bad() -> None:
    [_, second] = check(line("a", method="GET") + b"\n" + line("a")).faults
    assert (second.code, second.line) == ("duplicate_custom_id", 2)
    assert "line 1" in second.message


@pytest.mark.contract("B-18")
def test_an_unknown_model_is_reported_once_where_it_is_named_first() -> None:
    data = b"\n".join([line("a", model="x"), line("b", model="x"), line("c", model="y")])
    assert faults(check(data, served={"m": True})) == [
        ("model_not_found", 1),
        ("mismatched_model", 3),
        ("model_not_found", 3),
    ]


def test_models_are_not_judged_before_any_engine_was_seen() -> None:
    assert check(line("a", model="x")).ok


def test_faults_beyond_the_cap_are_counted() -> None:
    num_bad = MAX_REPORTED_FAULTS + 500
    report = check(b"{\n" * num_bad, step=4096)
    assert report.num_faults == num_bad
    assert len(report.faults) == MAX_REPORTED_FAULTS + 1
    assert report.faults[-1].code == "too_many_errors"
    assert "500 more" in report.faults[-1].message
    assert report.faults[-2].line == MAX_REPORTED_FAULTS


def test_what_is_kept_of_faults_is_bounded_however_long_their_names() -> None:
    bad = b'{"custom_id":"x","body":{"model":"m","%s":1}}\n' % ("é" * 10_000).encode()
    report = check(bad * MAX_REPORTED_FAULTS, step=1 << 20)
    assert len(orjson.dumps([fault.as_wire() for fault in report.faults])) < 2 * MAX_REPORTED_BYTES
    assert report.faults[-1].code == "too_many_errors"
    assert report.num_faults >= MAX_REPORTED_FAULTS


def test_a_model_has_a_bounded_name() -> None:
    assert check(line("a", model="m" * 256)).model == "m" * 256
    report = check(line("a", model="m" * 300_000))
    assert report.model is None
    [fault] = report.faults
    assert (fault.code, fault.param) == ("invalid_value", "body.model")


@pytest.mark.contract("B-20")
def test_exactly_the_limit_of_lines_runs_and_one_more_does_not() -> None:
    limits = CheckLimits(max_rows=3)
    three = b"\n".join(line(str(number)) for number in range(3))
    assert len(check(three, limits=limits).rows) == 3
    report = check(three + b"\n" + b"{not looked at\n" + line("a"), limits=limits)
    assert faults(report) == [("too_many_lines", None)]
    assert "5 requests" in report.faults[0].message


@pytest.mark.contract("B-30")
def test_embedding_inputs_are_counted_over_all_lines() -> None:
    def embedding(custom_id: str, num_inputs: int) -> bytes:
        body = {"model": "m", "input": ["x"] * num_inputs}
        one = {"custom_id": custom_id, "method": "POST", "url": EMBEDDINGS_PATH, "body": body}
        return orjson.dumps(one) + b"\n"

    def judge(*num_inputs: int, limits: CheckLimits) -> CheckReport:
        checked = FileCheck(EMBEDDINGS_PATH, limits=limits)
        for number, num in enumerate(num_inputs):
            checked.feed(embedding(str(number), num))
        return checked.finish()

    assert DOCUMENTED_LIMITS.max_embedding_inputs == 50_000
    limits = CheckLimits(max_embedding_inputs=5)
    assert judge(2, 3, limits=limits).ok
    report = judge(2, 3, 1, limits=limits)
    assert faults(report) == [("too_many_inputs", None)]
    assert "6 embedding inputs" in report.faults[0].message
    assert faults(judge(2, 0, limits=limits)) == [("invalid_value", 2)]
    assert judge(*[2000] * 25, limits=DOCUMENTED_LIMITS).ok
    assert not judge(*[2000] * 25, 1, limits=DOCUMENTED_LIMITS).ok


@pytest.mark.contract("B-21")
def test_a_file_and_a_line_over_the_limits() -> None:
    limits = CheckLimits(max_line_bytes=200, max_file_bytes=300)
    report = check(line("a", content="x" * 300) + b"\n" + line("b"), limits=limits)
    assert faults(report) == [("line_too_long", 1), ("file_too_large", None)]


def test_lines_that_begin_alike_become_neighbours_and_others_keep_their_order() -> None:
    system = ["A" * 2000, "B" * 2000]
    contents = [
        "lonely",
        system[0] + "x" * 3000 + "1",
        system[1] + "1",
        "short",
        system[0] + "y" * 3000 + "2",
        system[1] + "2",
        system[0] + "x" * 3000 + "3",
        "lonely too",
    ]
    data = b"\n".join(line(str(at), content=content) for at, content in enumerate(contents))
    rows = sorted(check(data).rows, key=lambda row: (row.prefix_hash, row.line_no))
    assert [int(row.custom_id) for row in rows] == [0, 1, 6, 4, 2, 5, 3, 7]


def test_the_order_fits_a_bigint_at_the_limit() -> None:
    assert subject.MAX_ROWS < 1 << subject._BITS_PER_DEPTH
    assert len(subject._PREFIX_DEPTHS) * subject._BITS_PER_DEPTH < 63


def asked(custom_id: str, content: str, **body: Any) -> bytes:
    raw = orjson.loads(line(custom_id, content=content))
    raw["body"] |= body
    return orjson.dumps(raw)


def test_rows_that_ask_the_same_name_the_first_of_them() -> None:
    lines = [
        asked("a", "one", temperature=0),
        asked("b", "two", temperature=0),
        asked("c", "one", temperature=0),
        asked("d", "one", temperature=0.0),
        asked("e", "one"),
        asked("f", "one", temperature=0, max_tokens=3),
        asked("g", "two", temperature=0),
        asked("h", "two", seed=1),
        asked("i", "two", seed=1),
    ]
    report = check(b"\n".join(lines))
    assert [one.same_as for one in report.rows] == [
        *(None, None, "a", None, None, None, "b", None, "h")
    ]
    assert report.rows.num_repeats == 3


def test_what_a_quote_is_made_of() -> None:
    common = "You grade answers. " * 40  # 760 characters
    lines = [asked(f"r{n}", f"{common}{n:04}", max_tokens=50) for n in range(10)]
    lines += [asked("again", f"{common}0003", max_tokens=50, seed=1)]
    lines += [asked("twice", f"{common}0003", max_tokens=50, seed=1), asked("open", "hi", n=2)]
    data = b"\n".join(lines)
    report = check(data)
    found = report.rows.contents(report.num_bytes)
    assert (found.num_rows, found.num_distinct, found.num_bytes) == (13, 12, len(data))
    assert dict(found.answer_limits) == {50: 12, None: 1}
    assert found.prompt_tokens == report.rows.num_tokens
    # At least the largest depth below what they share: 512 of 760 characters; a repeat shares all.
    each = 512 // 4
    assert 10 * each + 190 <= found.shared_tokens <= found.prompt_tokens
    assert found.answer_tokens(20.0) == 13 * 20
    assert found.answer_tokens(80.0) == 12 * 50 + 80
