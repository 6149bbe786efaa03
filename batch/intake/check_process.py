"""A file's check in a process of its own: its bytes on stdin, the report as JSON on stdout.

Judging 50,000 lines takes seconds of CPU. In the gateway's process they would come out of the
time of online streams; here they run at a lower priority. `batch/intake/dry_run.py` starts it.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from dataclasses import asdict
from typing import BinaryIO, Final

import orjson

from api.numbers import ModelSizes
from batch.files.base import CHUNK_BYTES
from batch.intake.check import CheckReport, FileCheck

NICENESS: Final = 10


def check_stream(
    stream: BinaryIO,
    endpoint: str,
    served_models: dict[str, bool] | None,
    sizes: Mapping[str, ModelSizes] = {},
) -> CheckReport:
    """The report on everything the stream gives."""
    check = FileCheck(endpoint, served_models=served_models, sizes=sizes)
    while chunk := stream.read(CHUNK_BYTES):
        check.feed(chunk)
    return check.finish()


def as_json(report: CheckReport) -> bytes:
    return orjson.dumps(
        {
            "num_lines": report.num_lines,
            "num_bytes": report.num_bytes,
            "model": report.model,
            "faults": [fault.as_wire() for fault in report.faults],
            "contents": asdict(report.rows.contents(report.num_bytes)) if report.ok else None,
        }
    )


def main(arguments: str) -> None:
    """Check stdin.

    Args:
        arguments: JSON, `[endpoint, served models or null, sizes by model]`.
    """
    os.nice(NICENESS)
    endpoint, served_models, told = orjson.loads(arguments)
    sizes = {model: ModelSizes(*size) for model, size in told.items()}
    report = check_stream(sys.stdin.buffer, endpoint, served_models, sizes)
    sys.stdout.buffer.write(as_json(report))


if __name__ == "__main__":
    main(sys.argv[1])
