"""`coserve batch`: submit, check, list, get, cancel and download batches."""

from __future__ import annotations

import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from coserve.commands import batch_reading, batch_run
from coserve.commands.batch_terminal import (
    ApiKey,
    BaseUrl,
    BatchId,
    Refusals,
    make_client,
    make_console,
    print_batch,
)
from coserve.commands.listing import AsJson, print_json
from store.states import TERMINAL_BATCH, BatchStatus

if TYPE_CHECKING:
    from rich.console import Console

    from batch.intake.check import CheckReport
    from coserve.commands.batch_client import BatchClient


app = typer.Typer(no_args_is_help=True, help="Submit, check and follow batches.")
batch_reading.register(app)
app.command()(batch_run.run)


# --- Steer.


@app.command()
def pause(batch_id: BatchId, base_url: BaseUrl = None, api_key: ApiKey = None) -> None:
    """Take a batch's rows off the engine for now; none is lost, and its window goes on."""
    console = make_console()
    with make_client(base_url, api_key) as client, Refusals():
        print_batch(console, client.pause(batch_id))


@app.command()
def resume(batch_id: BatchId, base_url: BaseUrl = None, api_key: ApiKey = None) -> None:
    """Let a paused batch go on."""
    console = make_console()
    with make_client(base_url, api_key) as client, Refusals():
        print_batch(console, client.resume(batch_id))


@app.command()
def retry(batch_id: BatchId, base_url: BaseUrl = None, api_key: ApiKey = None) -> None:
    """Run the rows that failed, expired or were cancelled again, as a new batch."""
    console = make_console()
    with make_client(base_url, api_key) as client, Refusals():
        again = client.retry(batch_id)
        console.print(f"{again['id']}: runs what {batch_id} left unanswered", highlight=False)
        print_batch(console, again)


# `priority ID -10`: a negative number is no option.
@app.command(context_settings={"ignore_unknown_options": True})
def priority(
    batch_id: BatchId,
    value: Annotated[int, typer.Argument(min=-100, max=100, help="Higher goes first.")],
    base_url: BaseUrl = None,
    api_key: ApiKey = None,
) -> None:
    """Change a live batch's place among the batches of its project."""
    console = make_console()
    with make_client(base_url, api_key) as client, Refusals():
        print_batch(console, client.prioritize(batch_id, value))


# --- Submit, check and follow.

SHOWN_FAULTS = 20
"""A file of the wrong kind has an error in each of its lines."""

InputFile = Annotated[
    Path, typer.Argument(exists=True, dir_okay=False, readable=True, help="A JSONL input file.")
]
Endpoint = Annotated[
    str | None, typer.Option(help="What the lines call; by default the URL of the first line.")
]
Folder = Annotated[
    Path | None, typer.Option("--dir", file_okay=False, help="Where downloads are written.")
]


@app.command()
def submit(  # noqa: PLR0913
    file: InputFile,
    wait: Annotated[bool, typer.Option(help="Follow it to its end and download.")] = False,
    endpoint: Endpoint = None,
    window: Annotated[str, typer.Option(help="The completion window.")] = "24h",
    metadata: Annotated[
        list[str] | None, typer.Option(help="KEY=VALUE, echoed with the batch; repeatable.")
    ] = None,
    check: Annotated[bool, typer.Option(help="Check the file here before it is sent.")] = True,
    priority: Annotated[
        int, typer.Option(min=-100, max=100, help="Higher goes first within the project.")
    ] = 0,
    paused: Annotated[
        bool, typer.Option("--paused", help="Do not begin before `coserve batch resume`.")
    ] = False,
    webhook: Annotated[
        list[str] | None,
        typer.Option(help="Id of an endpoint to notify of its end; repeatable. All if left out."),
    ] = None,
    reuse: Annotated[
        str | None,
        typer.Option(
            help="Use answers of batches with this option, and give its own for so long: 7d."
        ),
    ] = None,
    directory: Folder = None,
    quiet: Annotated[
        bool, typer.Option("--quiet", "-q", help="Print the id of the batch alone.")
    ] = False,
    base_url: BaseUrl = None,
    api_key: ApiKey = None,
) -> None:
    """Upload FILE, create a batch over it, and with --wait follow it and fetch its results.

    The results are written beside FILE (or to --dir), as NAME.output.jsonl and NAME.errors.jsonl.
    """
    console = make_console(quiet=quiet)
    called = endpoint or _first_url(file)
    if check:
        report = _check_file(file, called, None)
        if not report.ok:
            _print_faults(make_console(), file, report, whole=False)
            console.print("Nothing was sent.")
            raise typer.Exit(1)
    pairs = _pairs(metadata or [])
    with make_client(base_url, api_key) as client, Refusals():
        uploaded = client.upload(file)
        options = _options(priority, webhook, reuse, paused=paused)
        batch = client.create(
            uploaded["id"],
            endpoint=called,
            completion_window=window,
            metadata=pairs,
            options=options,
        )
        if quiet:
            typer.echo(batch["id"])
        console.print(f"{batch['id']}: created over {file.name}", highlight=False)
        if warning := (batch.get("coserve") or {}).get("warning"):
            console.print(warning, highlight=False)
        if not wait:
            console.print(f"Follow it with: coserve batch wait {batch['id']}", highlight=False)
            return
        batch = batch_reading.follow(client, batch, console)
        print_batch(console, batch)
        _download(console, client, batch, directory or file.parent, file.stem)
    if batch["status"] != BatchStatus.COMPLETED:
        raise typer.Exit(1)


@app.command()
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
    called = endpoint or _first_url(file)
    report = _check_file(file, called, model)
    offer = None
    if quote and report.ok:
        with make_client(base_url, api_key) as client, Refusals():
            offer = _quote(client, file, called)
    if json:
        print_json({**_report(report), "quote": offer})
        raise typer.Exit(0 if report.ok else 1)
    if not report.ok:
        _print_faults(console, file, report, whole=whole)
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


def _quote(client: BatchClient, file: Path, endpoint: str) -> dict[str, Any]:
    """What the service says of a file; it keeps none of it."""
    uploaded = client.upload(file)
    try:
        found = client.check(uploaded["id"], endpoint)
    finally:
        client.delete_file(uploaded["id"])
    if found["errors"] is not None:
        typer.echo(f"The service refuses it: {found['errors']['data'][0]['message']}", err=True)
        raise typer.Exit(1)
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


@app.command()
def cancel(batch_id: BatchId, base_url: BaseUrl = None, api_key: ApiKey = None) -> None:
    """Cancel a batch; what is finished is kept and can be downloaded."""
    console = make_console()
    with make_client(base_url, api_key) as client, Refusals():
        print_batch(console, client.cancel(batch_id))


@app.command()
def download(
    batch_id: BatchId,
    directory: Folder = None,
    base_url: BaseUrl = None,
    api_key: ApiKey = None,
) -> None:
    """Fetch the output and error files of a batch that is over."""
    console = make_console()
    with make_client(base_url, api_key) as client, Refusals():
        batch = client.get(batch_id)
        if not _download(console, client, batch, directory or Path(), batch_id):
            console.print(_nothing_to_download(batch), highlight=False)
            raise typer.Exit(1)


def _nothing_to_download(batch: dict[str, Any]) -> str:
    """Why, and where to look instead."""
    if batch["status"] == BatchStatus.FAILED:
        return f"It failed in validation: coserve batch get {batch['id']} lists the errors."
    if batch["status"] in TERMINAL_BATCH:
        return f"Nothing to download: no row of the batch has a result ({batch['status']})."
    return f"It is {batch['status']}. The results so far: coserve batch results {batch['id']}"


def _options(
    priority: int, webhook: list[str] | None, reuse: str | None, *, paused: bool
) -> dict[str, Any]:
    """What was asked for beyond the official fields."""
    asked = {
        "priority": priority, "paused": paused, "webhook_endpoints": webhook, "reuse": reuse,
    }  # fmt: skip
    return {name: value for name, value in asked.items() if value}


def _pairs(metadata: list[str]) -> dict[str, str]:
    pairs = dict(pair.partition("=")[::2] for pair in metadata)
    if any("=" not in pair for pair in metadata):
        raise typer.BadParameter("metadata must be KEY=VALUE")
    return pairs


def _first_url(file: Path) -> str:
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


def _check_file(file: Path, endpoint: str, model: str | None) -> CheckReport:
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


def _print_faults(console: Console, file: Path, report: CheckReport, *, whole: bool = True) -> None:
    faults = report.faults
    for fault in faults if whole else faults[:SHOWN_FAULTS]:
        where = file.name if fault.line is None else f"{file.name}:{fault.line}"
        console.print(f"{where}: {fault.code}: {fault.message}", highlight=False, markup=False)
    if not whole and len(faults) > SHOWN_FAULTS:
        console.print(f"and {len(faults) - SHOWN_FAULTS:,} more", highlight=False)
    errors = "error" if report.num_faults == 1 else "errors"
    console.print(f"{report.num_faults:,} {errors}", highlight=False)


def _download(
    console: Console, client: BatchClient, batch: dict[str, Any], folder: Path, stem: str
) -> int:
    """Fetch what there is; returns how many files."""
    num_files = 0
    folder.mkdir(parents=True, exist_ok=True)
    for kind, file_id in (("output", batch["output_file_id"]), ("errors", batch["error_file_id"])):
        if file_id is not None:
            path = folder / f"{stem}.{kind}.jsonl"
            size_bytes = client.download(file_id, path)
            console.print(f"{path}: {size_bytes:,} bytes", highlight=False)
            num_files += 1
    return num_files
