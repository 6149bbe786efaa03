"""`make conformance`: official clients, their own tests and validators against one live stack.

`python -m tests.conformance [--engine real] [PART ...]`; without a part, all that need nothing more
than what is installed. What each found replaces what it found before in
`bench/results/conformance.json` (or `conformance_real.json`) when it has ended.
"""

from __future__ import annotations

import argparse
import signal
import sys
import tempfile
import time
from datetime import UTC, datetime
from pathlib import Path
from types import FrameType

import orjson

from bench.paths import RESULTS
from bench.report import environment
from tests.conformance.live_stack import live_stack
from tests.conformance.parts import ASKED_FOR, NOT_REAL, PARTS
from tests.conformance.results import Result
from tests.conformance.suites.sdk_selection import DESELECTED


def main() -> int:
    """Run the parts; 1 if anything failed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--engine", choices=["fake", "real"], default="fake")
    parser.add_argument(
        "parts", nargs="*", metavar="PART", help=f"of {', '.join(PARTS | ASKED_FOR)}"
    )
    options = parser.parse_args()
    known = PARTS | ASKED_FOR
    unknown = set(options.parts) - known.keys()
    if unknown:
        parser.error(f"no such part: {', '.join(sorted(unknown))}")
    real = options.engine == "real"
    # A run that is ended takes its stack along: these would end this process without a word to it.
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, _leave)
    results: list[Result] = []
    with tempfile.TemporaryDirectory() as folder, live_stack(real=real) as live:
        for name in options.parts or [one for one in PARTS if not (real and one in NOT_REAL)]:
            _say(f"== {name}")
            began_s = time.monotonic()
            result = known[name](live, Path(folder))
            result.seconds = time.monotonic() - began_s
            result.measured_at = _now()
            results.append(result)
            _say(_line(result))
            for failure in result.failures:
                _say(f"   FAILED {failure}")
            if name in PARTS:
                _write(result, real=real)
    _say("")
    for result in results:
        _say(_line(result))
    return 0 if all(result.ok for result in results) else 1


def _leave(number: int, _: FrameType | None) -> None:
    raise SystemExit(128 + number)


def _line(result: Result) -> str:
    verdict = "ok" if result.ok else "FAILED"
    answers = result.notes.get("answers")
    return (
        f"{result.name}: {result.passed} passed, {result.failed} failed, {result.skipped} skipped, "
        f"{result.seconds:.0f} s: {verdict}"
        f"{f' (answers: {answers})' if answers else ''}"
    )


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")  # noqa: TID251


def _write(result: Result, *, real: bool) -> None:
    path = RESULTS / ("conformance_real.json" if real else "conformance.json")
    parts = orjson.loads(path.read_bytes())["parts"] if path.exists() else []
    found = {part["name"]: part for part in parts} | {result.name: result.as_json()}
    body = {
        "name": "conformance",
        "engine": "SGLang, default model" if real else "fake engines over HTTP",
        "measured_at": result.measured_at,
        "environment": environment(),
        "parts": [*found.values()],
        "deselected": DESELECTED,
    }
    path.write_bytes(orjson.dumps(body, option=orjson.OPT_INDENT_2) + b"\n")


def _say(text: str) -> None:
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
