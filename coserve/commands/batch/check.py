"""`coserve batch check`: the errors of an input file, found here before anything is sent."""

from __future__ import annotations

import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from coserve.commands.listing import AsJson
from coserve.commands.service import ApiKey, BaseUrl, connected
from coserve.commands.terminal import make_console, print_json, refuse

if TYPE_CHECKING:
    from rich.console import Console

    from batch.intake.check import CheckReport
    from coserve.commands.service_client import ServiceClient

SHOWN_FAULTS = 20
"""A file of the wrong kind has an error in each of its lines."""

InputFile = Annotated[
    Path, typer.Argument(exists=True, dir_okay=False, readable=True, help="A JSONL input file.")
]
Endpoint = Annotated[
    str | None, typer.Option(help="What the lines call; by default the URL of the first line.")
]


def check(  # noqa: PLR0913
    file: InputFile,
    endpoint: Endpoint = None,
    model: Annotated[
        str | None, typer.Option(help="The model the lines must name; by default any one model.")
    ] = None,
    whole: Annotated[
        bool, typer.Option("--all", help=f"Print more than {SHOWN_FAULTS} errors.")
    ] = False,
    quote: Annotated[
        bool,
        typer.Option(
            "--quote", help="Ask the service what it would come to; the file is uploaded for it."
        ),
    ] = False,
    json: AsJson = False,
    base_url: BaseUrl = None,
    api_key: ApiKey = None,
) -> None:
    """Check FILE here, without a service: its errors with their lines; exit status 1 if any."""
    console = make_console()
    called = endpoint or first_url(file)
    report = check_file(file, called, model)
    offer = None
    if quote and report.ok:
        with connected(base_url, api_key) as client:
            offer = _quote(client, file, called)
    if json:
        print_json({**_report(report), "quote": offer})
        raise typer.Exit(0 if report.ok else 1)
    if not report.ok:
        print_faults(console, file, report, whole=whole)
        raise typer.Exit(1)
    console.print(
        f"{file.name}: {report.num_lines:,} requests for model {report.model}, no errors",
        highlight=False,
    )
    counted = report.rows.contents(report.num_bytes)
    tokens = f"{counted.prompt_tokens:,} prompt tokens, {counted.shared_tokens:,} of them shared"
    console.print(f"{counted.num_distinct:,} of them distinct; about {tokens}", highlight=False)
    if offer is not None:
        _print_quote(console, offer)


def _quote(client: ServiceClient, file: Path, endpoint: str) -> dict[str, Any]:
    """What the service says of a file; it keeps none of it."""
    uploaded = client.upload(file)
    try:
        found = client.check(uploaded["id"], endpoint)
    finally:
        client.delete_file(uploaded["id"])
    if found["errors"] is not None:
        refuse(f"The service refuses it: {found['errors']['data'][0]['message']}")
    offer: dict[str, Any] = found["quote"]
    return offer


def _print_quote(console: Console, offer: dict[str, Any]) -> None:
    num_answer, price = offer["answer_tokens"], offer["price"]
    said = ["answers: not known before this project's first batch of the kind"]
    if num_answer is not None:
        said = [f"about {num_answer:,} answer tokens"]
    if price is not None:
        said.append(f"worth {price}")
    if offer["finish_range"] is not None:
        ends = (
            f"{datetime.fromtimestamp(one, UTC).astimezone():%H:%M on %-d %b}"
            for one in offer["finish_range"]
        )
        said.append("done between {} and {}".format(*ends))
    console.print("; ".join(said), highlight=False)


def first_url(file: Path) -> str:
    """The URL of the first line that has a legal one; chat where there is none."""
    import orjson

    from batch.intake.line import ENDPOINTS

    with file.open("rb") as lines:
        first = lines.readline(1024 * 1024).removeprefix(b"\xef\xbb\xbf")
    try:
        url = orjson.loads(first)["url"]
    except (orjson.JSONDecodeError, KeyError, TypeError):
        return ENDPOINTS[0]
    return url if url in ENDPOINTS else ENDPOINTS[0]


def check_file(file: Path, endpoint: str, model: str | None) -> CheckReport:
    from batch.files.base import CHUNK_BYTES
    from batch.intake.check import CheckLimits, FileCheck

    check = FileCheck(
        endpoint,
        served_models=None if model is None else {model: True},
        # Nobody pays for a long list here: all errors are shown.
        limits=CheckLimits(max_reported_faults=sys.maxsize),
    )
    with file.open("rb") as chunks:
        while chunk := chunks.read(CHUNK_BYTES):
            check.feed(chunk)
    return check.finish()


def _report(report: CheckReport) -> dict[str, Any]:
    """The report in the form of `POST /batches/check`."""
    faults = [
        {"code": one.code, "message": one.message, "param": one.param, "line": one.line}
        for one in report.faults
    ]
    return {
        "valid": report.ok,
        "num_lines": report.num_lines,
        "model": report.model,
        "errors": faults,
    }


def print_faults(console: Console, file: Path, report: CheckReport, *, whole: bool = True) -> None:
    faults = report.faults
    for fault in faults if whole else faults[:SHOWN_FAULTS]:
        where = file.name if fault.line is None else f"{file.name}:{fault.line}"
        console.print(f"{where}: {fault.code}: {fault.message}", highlight=False, markup=False)
    if not whole and len(faults) > SHOWN_FAULTS:
        console.print(f"and {len(faults) - SHOWN_FAULTS:,} more", highlight=False)
    errors = "error" if report.num_faults == 1 else "errors"
    console.print(f"{report.num_faults:,} {errors}", highlight=False)
