"""The check in a process of its own reports what the check reports."""

from __future__ import annotations

from io import BytesIO

import orjson

from batch.intake.check_process import as_json, check_stream

ENDPOINT = "/v1/completions"


def line(custom_id: str, model: str = "m") -> bytes:
    body = {"model": model, "prompt": "hi"}
    return orjson.dumps({"custom_id": custom_id, "method": "POST", "url": ENDPOINT, "body": body})


def test_a_report_as_json() -> None:
    data = line("a") + b"\n" + line("a") + b"\n"
    found = orjson.loads(as_json(check_stream(BytesIO(data), ENDPOINT, None)))
    assert (found["num_lines"], found["num_bytes"], found["model"]) == (2, len(data), "m")
    assert [(one["line"], one["code"]) for one in found["faults"]] == [(2, "duplicate_custom_id")]


def test_the_models_that_are_served() -> None:
    for served, codes in (
        ({"m": True}, []),
        ({"m": False}, ["unsupported_model"]),
        ({"n": True}, ["model_not_found"]),
        (None, []),
    ):
        report = check_stream(BytesIO(line("a")), ENDPOINT, served)
        assert [one.code for one in report.faults] == codes
