"""What the `coserve batch` commands share: their options, and how they speak."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from rich.console import Console

    from coserve.commands.batch_client import BatchClient

BaseUrl = Annotated[
    str, typer.Option(envvar="COSERVE_BASE_URL", help="Where the API is, /v1 included.")
]
ApiKey = Annotated[
    str | None,
    typer.Option(
        envvar="COSERVE_API_KEY",
        show_envvar=True,
        help="By default the admin key in the state directory.",
    ),
]
BatchId = Annotated[str, typer.Argument(help="The id of a batch, batch_...")]
DEFAULT_BASE_URL = "http://127.0.0.1:8080/v1"


def make_console() -> Console:
    """Where people are told things."""
    from rich.console import Console

    return Console(soft_wrap=True)


def make_client(base_url: str, api_key: str | None) -> BatchClient:
    """The service; ends with status 1 where there is no key for it."""
    from coserve.commands.batch_client import BatchClient, ServiceError, find_key

    try:
        return BatchClient(base_url, find_key(api_key))
    except ServiceError as missing:
        typer.echo(str(missing), err=True)
        raise typer.Exit(1) from None


class Refusals:
    """Prints what the service refused, and ends with status 1."""

    def __init__(self, console: Console) -> None:
        self._console = console

    def __enter__(self) -> None:
        return

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        from coserve.commands.batch_client import ServiceError

        if isinstance(error, ServiceError):
            typer.echo(str(error), err=True)
            raise typer.Exit(1) from None


def print_batch(console: Console, batch: dict[str, Any]) -> None:
    """What the batch is, how it gets on, and every error of its file."""
    counts = batch["request_counts"]
    console.print(
        f"{batch['id']}: {batch['status']}, {counts['completed']} completed and "
        f"{counts['failed']} failed of {counts['total']}",
        highlight=False,
    )
    ours = batch.get("coserve") or {}
    if ours.get("waiting_reason"):
        console.print(f"waiting: {ours['waiting_reason']}", highlight=False)
    if ours.get("rows_per_s"):
        rates = f"{ours['rows_per_s']:.1f} lines/s, {ours['tokens_per_s']:,.0f} tokens/s"
        console.print(rates, highlight=False)
    if ours.get("warning"):
        console.print(ours["warning"], highlight=False)
    for fault in (batch["errors"] or {"data": []})["data"]:
        where = "" if fault["line"] is None else f"line {fault['line']}: "
        console.print(f"{where}{fault['code']}: {fault['message']}", highlight=False, markup=False)
