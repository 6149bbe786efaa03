"""`coserve batch submit`: a file becomes a batch."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from coserve.commands.batch.check import Endpoint, InputFile, check_file, first_url, print_faults
from coserve.commands.batch.download import Folder, fetch_results
from coserve.commands.batch.wait import follow
from coserve.commands.service import ApiKey, BaseUrl, connected
from coserve.commands.terminal import make_console
from store.states import BatchStatus


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
    called = endpoint or first_url(file)
    if check:
        report = check_file(file, called, None)
        if not report.ok:
            print_faults(make_console(), file, report, whole=False)
            console.print("Nothing was sent.")
            raise typer.Exit(1)
    pairs = _pairs(metadata or [])
    with connected(base_url, api_key) as client:
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
        batch = follow(client, batch, console)
        fetch_results(console, client, batch, directory or file.parent, file.stem)
    if batch["status"] != BatchStatus.COMPLETED:
        raise typer.Exit(1)


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
