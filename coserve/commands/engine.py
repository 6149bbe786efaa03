"""`coserve engine`: the engines that gateway and batches use beside those of ENGINE_URLS.

Gateways and dispatchers read the registry every second; nothing is restarted.
"""

from __future__ import annotations

from typing import Annotated
from urllib.parse import urlsplit

import typer

from coserve.commands.listing import AsJson, Columns, Filters, Limit, show_list, text
from coserve.commands.transaction import in_transaction

app = typer.Typer(no_args_is_help=True)

Url = Annotated[str, typer.Argument(help="The engine's address, as http://host:port.")]


def _address(url: str) -> str:
    """The address as it is stored; ends the command where it is none."""
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.hostname or parts.query or parts.username:
        typer.echo(f"{url!r} is not an engine's address: http://host:port is expected.", err=True)
        raise typer.Exit(2)
    return url.rstrip("/")


@app.command()
def add(url: Url) -> None:
    """Use an engine, from now on."""
    from store.repositories import engine as engines

    address = _address(url)
    in_transaction(lambda session: engines.add(session, address))
    typer.echo(f"{address} is used as soon as it answers.")


@app.command("list")
def list_(json: AsJson = False, limit: Limit = 1000, filters: Filters = None) -> None:
    """Show every engine: registered, or seen by a gateway."""
    from store.repositories import engine as engines

    records = [
        {
            "url": one.url,
            "model": one.model,
            "from": "registered" if one.added else "ENGINE_URLS",
            "state": "draining" if one.draining else "in use",
            "batch_rows": one.num_rows,
        }
        for one in in_transaction(engines.states)
    ]
    columns: Columns = {
        "engine": text("url"),
        "model": lambda one: one["model"] or "not known yet",
        "from": text("from"),
        "state": text("state"),
        "batch rows there": text("batch_rows"),
    }
    show_list(columns, records, json=json, limit=limit, filters=filters)


@app.command()
def drain(url: Url) -> None:
    """Send nothing new to an engine; what runs there may finish."""
    from store.repositories import engine as engines

    address = _address(url)
    _need(in_transaction(lambda session: engines.drain(session, address)), address)
    typer.echo(f"{address} gets nothing new. `coserve engine list` shows what is left there.")


@app.command()
def resume(url: Url) -> None:
    """Use a draining engine again."""
    from store.repositories import engine as engines

    address = _address(url)
    _need(in_transaction(lambda session: engines.resume(session, address)), address)
    typer.echo(f"{address} is in use.")


@app.command()
def remove(url: Url) -> None:
    """Take an engine off the registry; what runs there may finish."""
    from store.repositories import engine as engines

    address = _address(url)
    if not in_transaction(lambda session: engines.remove(session, address)):
        typer.echo(
            f"{address} is not registered. One of ENGINE_URLS can be drained, and taken out there.",
            err=True,
        )
        raise typer.Exit(1)
    typer.echo(f"{address} is removed.")


def _need(known: bool, address: str) -> None:
    if not known:
        typer.echo(f"There is no engine {address}.", err=True)
        raise typer.Exit(1)
